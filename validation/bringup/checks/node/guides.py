"""What to know about gates of nodes that did not pass. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide

_PAGE = "01-environment"
_EVERYWHERE = "srun --label --nodes={node_count} --nodelist={nodes} --ntasks-per-node=1"

STATE = Guide(
    title="Slurm does not consider the node usable",
    page=_PAGE,
    observes=(
        "`State` and `Reason` of the node in `scontrol --oneliner show node`. Usable are `IDLE`, `MIXED`, "
        "`ALLOCATED` and `COMPLETING`. Flags that say nothing about health (`PLANNED`, `RESERVED`, `CLOUD`, …) are "
        "left out."
    ),
    why="Slurm starts no job on such a node. Everything that needs the node's own word is incomplete.",
    usually_means=(
        "`DOWN` or `NOT_RESPONDING`: slurmd does not run, or slurmctld cannot reach it. `DRAIN`: somebody, or a "
        "health check, took the node out; the reason says why. `INVALID_REG`: the node has less memory, fewer CPUs "
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
    observes=(
        "The closing line of the inventory probe of this node. The probe counts its facts, and as many facts must "
        "have arrived. If `srun` could not launch on the node, its error message about that node becomes the "
        "observation `no`."
    ),
    why="A node that cannot be reached through the scheduler cannot train, whatever state Slurm shows.",
    usually_means=(
        "The launch failed. `Communication connection failure`: slurmd ended, or a firewall is between the nodes. "
        "`Zero Bytes were transmitted`: the munge keys differ. *Incomplete*: nothing arrived. The node was not "
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
    observes=(
        "`discovery.node.distinct`: the boot id of the kernel (`/proc/sys/kernel/random/boot_id`). Two nodes with "
        "the same boot id are one running kernel. `discovery.node.hostname`: the host name that the node has given "
        "itself, which need not be its name in Slurm. No two nodes may share either."
    ),
    why="If two names lead to one machine, every result for two nodes is a result for one.",
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
    observes=(
        "On every node: the kernel release, the release of the system, the version of Python, the model of the CPU,"
        " the CPUs online, the sockets, cores, threads and NUMA nodes, the memory, and the mount that holds the "
        "checkout (type, source and options, without the address of the client). The value of the majority is taken"
        " as right, and the other nodes fail. Without a majority all fail, because nobody can say which value is "
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
        "Where a library has no place on the cluster, say so in its profile: an entry under `not_applicable` with "
        "the gate and the reason."
    ),
)

CLOCK = Guide(
    title="A clock is off",
    page=_PAGE,
    observes=(
        "40 round trips over TCP from each node to the first one, which answers with its time. The middle of the "
        "shortest trip is compared. The error is at most half of that trip, and it is added to the distance. The "
        "distance is measured from the median of all nodes, so that a wrong clock of the first node is named as "
        "such."
    ),
    why=(
        "Logs of ranks cannot be merged by time when clocks differ. Munge refuses credentials when they differ by "
        "minutes. Build tools and NFS caches compare times of files."
    ),
    usually_means=(
        "chrony or ntpd does not run on that node, or has no server. *Incomplete*: the node could not reach the "
        "first one on the port that the job took. A firewall that lets only Slurm's ports through does this, and it"
        " will stop `torchrun` too."
    ),
    next=(
        _EVERYWHERE + " bash -c 'chronyc tracking || timedatectl timesync-status'",
        "cat {run}/raw/clock.jsonl {run}/raw/clock.err",
    ),
)

LIMITS = Guide(
    title="Shared memory or open files are limited",
    page=_PAGE,
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
