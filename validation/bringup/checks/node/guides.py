"""What to know about gates of nodes that did not pass. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide
from bringup.records import Action

_PAGE = "01-environment"
_EVERYWHERE = "srun --label --nodes={node_count} --nodelist={nodes} --ntasks-per-node=1"

STATE = Guide(
    title="Slurm does not consider the node usable",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "`State` and `Reason` of the node in `scontrol --oneliner show node`. Usable are `IDLE`, `MIXED`, "
        "`ALLOCATED` and `COMPLETING`. Flags that say nothing about health (`PLANNED`, `RESERVED`, `CLOUD`, …) are "
        "left out."
    ),
    why="Slurm starts no job on such a node. Gates that need a report of the node are incomplete.",
    usually_means=(
        "`DOWN` or `NOT_RESPONDING`: slurmd does not run, or slurmctld cannot reach it. `DRAIN`: an administrator or "
        "a health check took the node out; the reason says why. `INVALID_REG`: the node has less memory, fewer CPUs "
        "or fewer GPUs than `slurm.conf` says. A node that was lost a moment ago may still look usable; then "
        "`discovery.node.answered` fails. *Incomplete*: `scontrol` did not name the node, or gave no answer."
    ),
    next=(
        "sinfo -N -l --nodes={node}",
        "scontrol show node {node}",
        "ssh {node} systemctl status slurmd",
    ),
    by_hand=(
        "Fix what the reason names. Then an administrator resumes the node: `scontrol update nodename=NODE "
        "state=resume`."
    ),
)

ANSWERED = Guide(
    title="The node did not answer",
    page=_PAGE,
    action=Action.REBOOT,
    observes=(
        "The closing line of the inventory probe of this node. The probe counts its facts, and as many facts must "
        "have arrived. If `srun` could not launch on the node, its error message about that node becomes the "
        "observation `no`."
    ),
    why="A node that cannot be reached through the scheduler cannot train, even if Slurm shows it as idle.",
    usually_means=(
        "The launch failed. `Communication connection failure`: slurmd ended, or a firewall is between the nodes. "
        "`Zero Bytes were transmitted`, in Slurm 26.05 `Protocol authentication error`: the munge keys differ. "
        "*Incomplete*: nothing arrived. The node was not "
        "usable, it has no `python3`, the time limit ended the probe, or the file was cut off (a note says `did not"
        " finish`)."
    ),
    next=(
        "cat {run}/raw/inventory*.err",
        "srun --nodes=1 --nodelist={node} python3 infrastructure-validation/probes/inventory.py",
        "munge -n | ssh {node} unmunge",
    ),
)

DISTINCT = Guide(
    title="Two node names are one machine",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "`discovery.node.distinct`: the boot id of the kernel (`/proc/sys/kernel/random/boot_id`). Two nodes with "
        "the same boot id are one running kernel. `discovery.node.hostname`: the host name that the node has given "
        "itself, which need not be its name in Slurm. Both must be different on every node."
    ),
    why="If two names resolve to the same machine, every result for two nodes is a result for one.",
    usually_means=(
        "The same boot id: a wrong `NodeAddr`, a wrong DNS or hosts entry, or two slurmds on one host. Containers "
        "do not matter here, because the boot id belongs to the kernel. (Each node of the local cluster is given a "
        "boot id of its own.) Only the same host name: the node was cloned from another one and kept its name. Logs"
        " and monitoring of the two then get mixed. *Incomplete*: fewer than two nodes answered."
    ),
    next=(
        _EVERYWHERE + " cat /proc/sys/kernel/random/boot_id /proc/sys/kernel/hostname",
        "scontrol show node {node} | grep -E 'NodeAddr|NodeHostName'",
    ),
)

DRIFT = Guide(
    title="A node differs from the others",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "On every node: the kernel release, the release of the system, the version of Python, the model of the CPU, "
        "the CPUs online, the sockets, cores, threads and NUMA nodes, the memory, and the mount that holds the "
        "checkout (type, source and options, without the address of the client). The value of the majority is taken "
        "as right, and the other nodes fail. Without a majority all fail, because it is not known which value is "
        "right. Memory may differ from the median by 2 %."
    ),
    why=(
        "A training runs as fast as its slowest node. Different software on the nodes ends in errors of NCCL or "
        "CUDA that look like faults of the network."
    ),
    usually_means=(
        "The node was reinstalled, or missed an update. Less memory or fewer CPUs: the firmware has disabled a "
        "memory module or a core. More threads or NUMA nodes with the same model of CPU: SMT or NUMA nodes per "
        "socket are set differently in the firmware. *Incomplete*: fewer than two nodes answered, or a node could "
        "not find out the value."
    ),
    next=(
        "grep -hE 'discovery.(kernel|os|python|cpu|mount)|inventory.memory' {run}/raw/inventory.jsonl",
        _EVERYWHERE + " uname -r",
        _EVERYWHERE + " findmnt -T .",
        _EVERYWHERE + " lscpu",
    ),
)

LIBRARIES = Guide(
    title="A library is missing or differs",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "Libraries that a launch or a collective loads from the node: libc, libcuda, NCCL (the one in the Python "
        "environment before the one of the system), libibverbs and libmunge. Of each: the file name, the size, and "
        "a hash of the first and last 16 MiB. A library that some nodes have and others lack counts as a "
        "difference; where most nodes lack it, all fail."
    ),
    why=(
        "Two builds of NCCL or of the driver in one job end in hangs or in errors that look like faults of the "
        "network. A node without libibverbs uses TCP."
    ),
    usually_means=(
        "*Fail*: the node was reinstalled, missed an update, or lacks a package that the others have. *Incomplete*:"
        " the library is installed on no node, so that nothing was compared. That is a fault where jobs need the "
        "library on the node: libcuda comes with the driver, libibverbs with rdma-core. It is fine where a "
        "container brings the library, or where the cluster has no use for it."
    ),
    next=(
        "grep -h 'inventory.library' {run}/raw/inventory.jsonl",
        _EVERYWHERE + " bash -c 'ldconfig -p | grep -E \"libcuda|nccl|ibverbs|munge\"'",
    ),
    by_hand=(
        "If the cluster does not need a library, declare its gate in the profile: an entry under `not_applicable` "
        "with the gate and the reason."
    ),
)

CLOCK = Guide(
    title="A clock is off",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "40 round trips over TCP from each node to the first one, which answers with its time. The middle of the "
        "shortest trip is compared. The error is at most half of that trip, and it is added to the distance. The "
        "distance is measured from the median of all nodes, so a wrong clock on the first node is found too. "
        "`discovery.clock.synchronised`: whether the kernel says that its clock is synchronised (adjtimex(2), which "
        "needs neither root nor a tool), with the error that the kernel allows for and the time daemons that run."
    ),
    why=(
        "Logs of ranks cannot be merged by time when clocks differ. Munge refuses credentials when they differ by "
        "minutes. Build tools and NFS caches compare times of files."
    ),
    usually_means=(
        "chrony or ntpd does not run on that node, or has no server. *Not synchronised, and chronyd runs*: it "
        "reports to the kernel only with `rtcsync` in its configuration. This only warns, and the offset judges. "
        "*Incomplete*: a container may forbid adjtimex(2). Where the offset is incomplete, the node could not reach "
        "the first one on the port that the job took. A firewall that lets only Slurm's ports through does this, "
        "and it will stop `torchrun` too."
    ),
    next=(
        _EVERYWHERE + " bash -c 'chronyc tracking || timedatectl timesync-status'",
        "cat {run}/raw/clock.jsonl {run}/raw/clock.err",
    ),
)

LIMITS = Guide(
    title="Shared memory or open files are limited",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "The size of `/dev/shm`, and how many files a task of Slurm may open (`ulimit -n`, the soft limit). The "
        "profile says how much is enough."
    ),
    why=(
        "Data loaders and NCCL between ranks of a node use `/dev/shm`. A rank opens files and sockets for every "
        "peer and every loader. Both run out in the middle of a training, and not at its start."
    ),
    usually_means=(
        "`/dev/shm` is small where tasks run in a container with its default of 64 MiB, or where the node has "
        "little memory. Few open files: slurmd was started with a low limit, or `PropagateResourceLimits` hands "
        "over the limits of the login host. *Incomplete*: the node did not answer."
    ),
    next=(
        "srun --nodes=1 --nodelist={node} bash -c 'df -h /dev/shm; ulimit -n'",
        "scontrol show config | grep -i PropagateResourceLimits",
        "ssh {node} systemctl show slurmd -p LimitNOFILE -p LimitMEMLOCK",
    ),
)

NAMES = Guide(
    title="Names of nodes",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "The first node resolves the names of all nodes of the run. Then every node resolves them too, many at "
        "once, and compares the addresses. IPv4 addresses are compared first; IPv6 only where a name has no IPv4 "
        "address. All lookups together may take 20 s. `discovery.names.unresolved`: names without an address, or "
        "without an answer in this time. `discovery.names.slowest`: the longest that one name took. "
        "`discovery.names.differ`: names with another address than on most nodes. Where nodes disagree about a "
        "name, the address that its node has is right. `discovery.names.own`: whether the address that others use "
        "for a node is one that the node has. `discovery.names.reachable`: whether the node resolves its own host "
        "name to more than a loopback address. A node is not compared on its own name: many installations give it "
        "127.0.1.1 there."
    ),
    why=(
        "Ranks find rank 0 by the name of its node. If a name resolves to another address, they wait for a host "
        "that never answers. A program that listens on its own host name, as gloo does by default, cannot be "
        "reached when that name means 127.0.1.1."
    ),
    usually_means=(
        "*Unresolved, different*: `/etc/hosts` of one node is old, or it asks another name server. *Not its own*: "
        "the entry of the node is old, or is the address of a host in front of it. *Only loopback*: the installer "
        "wrote `127.0.1.1` and the host name into `/etc/hosts`, as Debian and Ubuntu do. NCCL and `torchrun` work "
        "with that, so it only warns. *Slow*: the first name server does not answer, and each lookup waits for its "
        "timeout. *Incomplete*: the node did not start the probe, or could not read what the first node had "
        "written. Or most nodes know other addresses than the first node: look at its entries first."
    ),
    next=(
        "grep -hE 'names[.]' {run}/raw/names.jsonl",
        _EVERYWHERE + " getent ahostsv4 {node}",
        "srun --nodes=1 --nodelist={node} cat /etc/hosts /etc/resolv.conf",
    ),
)

TMP = Guide(
    title="Temporary files and /dev/shm",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "In the folder for temporary files (`TMPDIR` of a task, else `/tmp`) and in `/dev/shm`: a file of 4 KiB is "
        "written, synced, read back and removed (`writes`). `space` is what a user without root may still write, "
        "`files` how many files may still be made. The worse of the two folders counts, and the verdict names it. A "
        "folder that gives no answer for 20 s fails, and the probe goes on."
    ),
    why=(
        "Compilers of kernels, data loaders, NCCL and Slurm's own steps write there. On a full disk they fail with "
        "messages about something else."
    ),
    usually_means=(
        "*No space left*, with room for bytes: all files (inodes) are used up. *Little room*: files of earlier jobs "
        "were not removed, or `/tmp` lies in memory on a node without a disk. *Read-only*: the kernel found a disk "
        "error and mounted it read-only; look into the kernel log. *No such file*: `TMPDIR` was handed over from the "
        "login host and is not there on the node. *Incomplete*: the node did not answer."
    ),
    next=(
        "srun --nodes=1 --nodelist={node} bash -c 'for what in -h -i; do df $what ${TMPDIR:-/tmp} /dev/shm; done'",
        "srun --nodes=1 --nodelist={node} bash -c 'ls -lat ${TMPDIR:-/tmp} /dev/shm | head -n 40'",
    ),
)

NETWORK = Guide(
    title="A node has another network",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "All interfaces with a routable address (not loopback, not link-local): driver, speed, duplex, MTU, carrier, "
        "from `/sys/class/net`. Interfaces that are equal in these form a kind. Their names are ignored, and the "
        "number of each kind is compared. Bridges and tunnels without a device are left out, unless the node has "
        "nothing else, as in a container. The driver of the IPv4 default route is compared too. What most nodes have "
        "is right. The value is the number of kinds that differ."
    ),
    why=(
        "Two nodes with different MTUs exchange small messages and lose large ones: a job starts and then hangs. A NIC "
        "that came up at a tenth of its speed, or not at all, slows every collective."
    ),
    usually_means=(
        "*Another MTU*: the configuration of the interface was not applied on this node, or a switch port refuses "
        "jumbo frames. *Less speed*: a cable, a transceiver, or a forced speed. *One interface fewer, or one without "
        "an address*: the driver did not find the card, or DHCP did not answer. *Incomplete*: fewer than two nodes "
        "answered, or a node has too many kinds of interfaces for one line of evidence."
    ),
    next=(
        "grep -h inventory.network {run}/raw/inventory.jsonl",
        _EVERYWHERE + " ip -brief address",
        _EVERYWHERE + " ip -details -brief link",
    ),
)

SETTINGS = Guide(
    title="A setting of the kernel differs",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "Sizes of socket buffers, `somaxconn`, congestion control and local ports; swappiness, zone reclaim, "
        "overcommit, `max_map_count`, NUMA balancing, `pid_max`, `file-max` (a million or more counts as one value, "
        "because the kernel makes it from the memory), the limit of locked memory of a task, and the CPU governor. "
        "They are read from `/proc/sys` and `/sys`. Each is compared on its own: what most nodes have is right, and "
        "the verdict names what differs. A setting that no node has is not compared."
    ),
    why=(
        "A node with other settings is slower or fails earlier than the others, under the same job. Such a node is "
        "hard to find later: nothing on it is broken."
    ),
    usually_means=(
        "The node was installed at another time, or a file in `/etc/sysctl.d` or a `tuned` profile was not rolled "
        "out to it. *Governor*: `powersave` beside `performance`. Only a warning: the site decides which value is "
        "right. *Incomplete*: fewer than two nodes answered."
    ),
    next=(
        "grep -h inventory.settings {run}/raw/inventory.jsonl",
        _EVERYWHERE + " sysctl net.ipv4.tcp_congestion_control net.core.rmem_max vm.swappiness kernel.numa_balancing",
        _EVERYWHERE + " bash -c 'cat /sys/devices/system/cpu/cpu0/cpufreq/scaling_governor; ulimit -l'",
    ),
)
