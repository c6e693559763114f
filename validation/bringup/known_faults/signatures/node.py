"""What the kernel and the C library say on a node: errno words and limits. Data only."""

# ruff: noqa: E501  # log lines stand as they are printed
from __future__ import annotations

from bringup.known_faults.signature import Signature

_AREA = "node"

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="host.no-space",
        area=_AREA,
        pattern=r"No space left on device|Disk quota exceeded|ENOSPC",
        cause="a filesystem is full, or its quota is",
        do="df -h and df -i of the path in the line; lfs quota or quota -s",
        source="errno ENOSPC, EDQUOT",
        example="OSError: [Errno 28] No space left on device: 'metrics.json'",
        breadth="errno",
    ),
    Signature(
        id="host.read-only",
        area=_AREA,
        pattern=r"Read-only file system",
        cause="the filesystem is mounted read-only, or became so after an error",
        do="findmnt -T PATH on the node; dmesg -T | tail",
        source="errno EROFS",
        example="mkdir: cannot create directory 'raw': Read-only file system",
        breadth="errno",
    ),
    Signature(
        id="host.stale",
        area=_AREA,
        pattern=r"Stale (NFS )?file handle",
        cause="a file was replaced on the server while a node had it open",
        do="remount on the node; smoke.fs.* names the pair of nodes",
        source="errno ESTALE",
        example="cat: run.json: Stale file handle",
        breadth="errno",
    ),
    Signature(
        id="host.io-error",
        area=_AREA,
        pattern=r"Input/output error|Remote I/O error",
        cause="a disk or the filesystem's server failed a read or write",
        do="dmesg -T on the node; the filesystem's own health command",
        source="errno EIO",
        example="OSError: [Errno 5] Input/output error",
        breadth="errno",
    ),
    Signature(
        id="host.shm",
        area=_AREA,
        pattern=r"Bus error|unable to (mmap|open|allocate) shared memory|insufficient shared memory|/dev/shm.*(full|No space|error)|(failed to extend|No space left on device.*) /dev/shm"
        r"|(creating|attaching to) shared memory segment|posix_fallocate|(write to|mmap|resize) (shared memory |a )?file <?/?torch_|No space left .*torch_",
        cause="shared memory is too small for the data-loader's or NCCL's buffers",
        do="df -h /dev/shm; remount it with half of the memory",
        source="torch DataLoader; SIGBUS",
        example="RuntimeError: DataLoader worker (pid 99) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
    ),
    Signature(
        id="host.memory",
        area=_AREA,
        pattern=r"Cannot allocate memory|can't allocate memory|MemoryError|std::bad_alloc|Out of memory: Killed process",
        cause="the node has no memory left for it",
        do="free -g; ulimit -l -v in the job; --mem; fewer data-loader workers",
        source="errno ENOMEM; the kernel",
        example="RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes.",
        breadth="errno",
    ),
    Signature(
        id="host.files",
        area=_AREA,
        pattern=r"Too many open files|can't start new thread|Thread creation failed: Resource temporarily|(fork|clone|pthread_create|posix_spawn|execv\w*)\b.*Resource temporarily unavailable|BlockingIOError: \[Errno 11\]",
        cause="a limit of the user is reached: open files or processes",
        do="ulimit -n -u inside a job (not on the login host); PropagateResourceLimits",
        source="errno EMFILE, EAGAIN",
        example="OSError: [Errno 24] Too many open files",
    ),
    Signature(
        id="host.name",
        area=_AREA,
        pattern=r"Name or service not known|Temporary failure in name resolution|Could not resolve host|nodename nor servname",
        cause="a host name has no address on this node",
        do="getent ahostsv4 NAME on every node; /etc/hosts, DNS",
        source="getaddrinfo",
        example="socket.gaierror: [Errno -2] Name or service not known",
        breadth="errno",
    ),
    Signature(
        id="host.route",
        area=_AREA,
        pattern=r"No route to host|Network is unreachable|Connection refused",
        cause="the other host does not take connections on this port",
        do="ping and nc -vz HOST PORT between the two nodes; a firewall between compute nodes?",
        source="errno EHOSTUNREACH, ENETUNREACH, ECONNREFUSED",
        example="OSError: [Errno 113] No route to host",
        role="either",
        breadth="errno",
    ),
    Signature(
        id="host.not-executable",
        area=_AREA,
        pattern=r"(execve\(\)|exec).*(No such file or directory|Permission denied|not found)|command not found|bad interpreter"
        r"|no Python environment at|can't open file|error while loading shared libraries",
        cause="a program is not there on this node, or may not be run: a path that is not shared, a mount with noexec",
        do="ls -l PATH on the node that says so; findmnt -T PATH",
        source="slurmstepd; the shell",
        example="slurmstepd: error: execve(): /home/u/.venv/bin/python: No such file or directory",
    ),
)
