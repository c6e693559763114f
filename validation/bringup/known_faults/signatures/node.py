"""What the kernel and the C library say on a node: errno words and limits. Data only."""

# ruff: noqa: E501  # log lines stand as they are printed
from __future__ import annotations

from bringup.known_faults.signature import Signature

_AREA = "node"

# Programs of the network print the same words of an errno about a device, a queue or an address.
_ABOUT_A_FILE = (
    r"^(?!.*\b(UCX|ucp_\w+|NCCL|libfabric|mlx5dv?_\w+|ibv_\w+)\b)"  # not a program of the network
    r".*(\[Errno \d+\]|\b(OS|IO)Error\b|\b(read|write|reading|writing)\b|(^|[\s'\"=:(\[])(\.{0,2}|~)/[\w.]|['\"][^'\"]+['\"]|\w\.\w+: |fio: )"
)

SIGNATURES: tuple[Signature, ...] = (
    Signature(
        id="host.no-space",
        area=_AREA,
        patterns=(
            r"No space left on device",
            r"Disk quota exceeded",
            r"ENOSPC",
        ),
        subject=_ABOUT_A_FILE,
        cause="a filesystem is full, or its quota is",
        do="df -h and df -i of the path in the line; lfs quota or quota -s",
        source="errno ENOSPC, EDQUOT",
        example="OSError: [Errno 28] No space left on device: 'metrics.json'",
        breadth="errno",
    ),
    Signature(
        id="host.read-only",
        area=_AREA,
        patterns=(r"Read-only file system",),
        cause="the filesystem is mounted read-only, or became so after an error",
        do="findmnt -T PATH on the node; dmesg -T | tail",
        source="errno EROFS",
        example="mkdir: cannot create directory 'raw': Read-only file system",
        breadth="errno",
    ),
    Signature(
        id="host.stale",
        area=_AREA,
        patterns=(r"Stale (NFS )?file handle",),
        cause="a file was replaced on the server while a node had it open",
        do="remount on the node; smoke.fs.* names the pair of nodes",
        source="errno ESTALE",
        example="cat: run.json: Stale file handle",
        breadth="errno",
    ),
    Signature(
        id="host.io-error",
        area=_AREA,
        patterns=(
            r"Input/output error",
            r"Remote I/O error",
        ),
        subject=_ABOUT_A_FILE,
        cause="a disk or the filesystem's server failed a read or write",
        do="dmesg -T on the node; the filesystem's own health command",
        source="errno EIO",
        example="OSError: [Errno 5] Input/output error",
        breadth="errno",
    ),
    Signature(
        id="host.shm",
        area=_AREA,
        patterns=(
            r"Bus error",
            r"unable to (mmap|open|allocate) shared memory",
            r"insufficient shared memory",
            r"dev/shm.*(full|No space)",
            r"failed to extend .*/dev/shm",
            r"No space left on device.* /dev/shm",
            r"shared memory segment(?!.*No such file or directory)",
            r"posix_fallocate",
            r"write to (shared memory |a )?file <?/?torch_",
            r"mmap (shared memory |a )?file <?/?torch_",
            r"resize (shared memory |a )?file <?/?torch_",
            r"No space left .*torch_",
        ),
        cause="shared memory is too small for the data-loader's or NCCL's buffers",
        do="df -h /dev/shm; remount it with half of the memory",
        source="torch DataLoader; SIGBUS",
        example="RuntimeError: DataLoader worker (pid 99) is killed by signal: Bus error. It is possible that dataloader's workers are out of shared memory.",
    ),
    Signature(
        id="host.shm-removed",
        area=_AREA,
        patterns=(r"dev/shm/.*No such file or directory", r"shared memory segment.*No such file or directory"),
        cause="a file in /dev/shm was removed while it was used: systemd does so for a user who is logged out (RemoveIPC), or an epilog or a cron job cleans /dev/shm",
        do="grep RemoveIPC /etc/systemd/logind.conf on the node (no is right for a cluster); what else cleans /dev/shm there?",
        source="NCCL shmutils.cc; logind.conf(5)",
        example="h1:9312:9344 [3] misc/shmutils.cc:130 NCCL WARN unlink shared memory /dev/shm/nccl-Xa41Qk failed, error: No such file or directory (2)",
        role="either",
    ),
    Signature(
        id="host.permission",
        area=_AREA,
        patterns=(r"PermissionError: \[Errno 13\]",),
        cause="the user of the job may not read or write this file",
        do="ls -ld of the path and of its folders on the node that says so; id there: the same user and groups as on the login host?",
        source="Python, errno EACCES",
        example="PermissionError: [Errno 13] Permission denied: '/scratch/run/raw'",
    ),
    Signature(
        id="host.memory",
        area=_AREA,
        patterns=(
            r"Cannot allocate memory",
            r"can't allocate memory",
            r"MemoryError",
            r"std::bad_alloc",
            r"Out of memory: Killed process",
        ),
        cause="the node has no memory left for it",
        do="free -g; ulimit -l -v in the job; --mem; fewer data-loader workers",
        source="errno ENOMEM; the kernel",
        example="RuntimeError: [enforce fail at alloc_cpu.cpp:127] DefaultCPUAllocator: can't allocate memory: you tried to allocate 4294967296 bytes.",
        breadth="errno",
    ),
    Signature(
        id="host.files",
        area=_AREA,
        patterns=(
            r"Too many open files",
            r"can't start new thread",
            r"Thread creation failed: Resource temporarily",
            r"fork\b.*Resource temporarily unavailable",
            r"clone\b.*Resource temporarily unavailable",
            r"pthread_create\b.*Resource temporarily unavailable",
            r"posix_spawn\b.*Resource temporarily unavailable",
            r"execv\w*\b.*Resource temporarily unavailable",
            r"BlockingIOError: \[Errno 11\]",
        ),
        cause="a limit of the user is reached: open files or processes",
        do="ulimit -n -u inside a job (not on the login host); PropagateResourceLimits",
        source="errno EMFILE, EAGAIN",
        example="OSError: [Errno 24] Too many open files",
    ),
    Signature(
        id="host.name",
        area=_AREA,
        patterns=(
            r"Name or service not known",
            r"Temporary failure in name resolution",
            r"Could not resolve host",
            r"nodename nor servname",
        ),
        cause="a host name has no address on this node",
        do="getent ahostsv4 NAME on every node; /etc/hosts, DNS",
        source="getaddrinfo",
        example="socket.gaierror: [Errno -2] Name or service not known",
        breadth="errno",
    ),
    Signature(
        id="host.route",
        area=_AREA,
        patterns=(
            r"No route to host",
            r"Network is unreachable",
            r"Connection refused",
        ),
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
        patterns=(
            r"execve\(\): .*(No such file or directory|Permission denied|not found)",
            r"exec: .*(No such file or directory|Permission denied|not found)",
            r"command not found",
            r"bad interpreter",
            r"no Python environment at",
            r"can't open file",
            r"error while loading shared libraries",
        ),
        subject=r"^(?!.*\bsudo: )",  # what a script sets with sudo, where it may, is seldom needed
        cause="a program is not there on this node, or may not be run: a path that is not shared, a mount with noexec",
        do="ls -l PATH on the node that says so; findmnt -T PATH",
        source="slurmstepd; the shell",
        example="slurmstepd: error: execve(): /home/u/.venv/bin/python: No such file or directory",
    ),
)
