"""Faults of the discovery phase. Data only.

Gates that have no drill here, and why: on the local cluster there is no GPU driver (discovery.gpu.* but count,
discovery.topology*), no PCI device (discovery.numa.gpu), no profile that expects RDMA ports (discovery.rdma.active), no second
interpreter and no second Slurm (python, slurm.version), one machine behind all nodes (cpu.model: its text would be a copy of the
drill for memory), and GresTypes and MpiDefault cannot be wrong in a Slurm that starts. Gates that local-cpu calls not applicable
(kill_on_bad_exit, health_check, prolog, epilog, memlock) are not judged here. All have a negative test on evidence:
tests/test_discovery_gpus.py, tests/test_fabric.py and tests/test_discovery.py.
"""

from __future__ import annotations

from bringup.drills.drill import Command, Drill
from bringup.records import Outcome

_FAKETIME = "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketime.so.1"  # where Debian's package faketime puts it
_ALL = ("n0", "n2", "n3")  # the healthy ones of four nodes


def _altered(path: str, edit: str) -> tuple[Command, ...]:
    """On n1 the file at `path` (a shell word) reads differently: an edited copy lies over it."""
    script = (
        f'path={path}; rm -f /tmp/altered && cp -L "$path" /tmp/altered && {edit} && mount --bind /tmp/altered "$path"'
    )
    return (("on", "n1", "bash", "-c", script),)


def _restored(path: str) -> tuple[Command, ...]:
    # lazily: umount itself runs on the libc that lies there
    return (("on", "n1", "bash", "-c", f'umount -l "$(readlink -f {path})"'),)


def _drift(id: str, fault: str, gate: str, path: str, edit: str, says: str) -> Drill:
    """One of four nodes differs: it is named, and the other three are not."""
    return Drill(
        id=id,
        fault=fault,
        phase="discovery",
        nodes=4,
        inject=_altered(path, edit),
        undo=_restored(path),
        gate=gate,
        subject="n1",
        outcome=Outcome.FAIL,
        says=says,
        silent=_ALL,
    )


def _reread(file: str, how: str) -> Command:
    """`how`: bash that changes "$file" of Slurm's configuration. cgroup.conf is read by every step anyway."""
    then = "scontrol reconfigure" if file == "slurm.conf" else "true"
    return "sh", "bash", "-c", f'file="$(dirname "$SLURM_CONF")/{file}"; {how} && {then}'


def _edit(edit: str, file: str = "slurm.conf") -> Command:
    return _reread(file, f'cp "$file" "$file.good" && sed -i "{edit}" "$file"')


def _put_back(file: str = "slurm.conf") -> Command:
    return _reread(file, 'mv "$file.good" "$file"')


def _configured(id: str, fault: str, edit: str, file: str, gate: str, outcome: Outcome, says: str) -> Drill:
    """A line of Slurm's configuration is other than it should be, and is put back."""
    return Drill(
        id=id,
        fault=fault,
        phase="discovery",
        inject=(_edit(edit, file),),
        undo=(_put_back(file),),
        gate=gate,
        subject="job",
        outcome=outcome,
        says=says,
    )


def _clock_off(id: str, node: str, silent: tuple[str, ...]) -> Drill:
    """An /etc of the node's own, so that the machine's is not written to; the hosts file lay over the old one."""
    script = (
        "mkdir -p /tmp/etc/upper /tmp/etc/work && mount -t overlay overlay "
        "-o lowerdir=/etc,upperdir=/tmp/etc/upper,workdir=/tmp/etc/work /etc && "
        'mount --bind "$BRINGUP_CLUSTER/etc/hosts" /etc/hosts && '
        f"echo -2.0 >/etc/faketimerc && echo {_FAKETIME} >/etc/ld.so.preload"
    )
    return Drill(
        id=id,
        fault=f"the clock of {node} is 2 s behind",
        phase="discovery",
        nodes=4,
        inject=(("on", node, "bash", "-c", script),),
        undo=(("on", node, "umount", "/etc/hosts"), ("on", node, "umount", "-l", "/etc")),
        gate="discovery.clock.offset",
        subject=node,
        outcome=Outcome.FAIL,
        says="behind the median of 4 nodes",
        silent=silent,
    )


_LIBMUNGE = "$(readlink -f \"$(ldconfig -p | sed -n 's/.*libmunge.so.2 .* => //p' | head -n 1)\")"
_LIBC = "$(readlink -f \"$(ldconfig -p | sed -n 's/.*libc.so.6 .* => //p' | head -n 1)\")"

# the kernel's own links to interfaces, and a device beside them
_FAKE_RDMA = (
    "rm -rf /tmp/class && mkdir /tmp/class && cp -a /sys/class/net /tmp/class && hca=/tmp/class/infiniband/mlx5_0 && "
    "port=$hca/ports/1 && mkdir -p $port $hca/device && echo '4: ACTIVE' >$port/state && "
    "echo '5: LinkUp' >$port/phys_state && echo '400 Gb/sec (4X NDR)' >$port/rate && "
    "echo InfiniBand >$port/link_layer && echo 0 >$hca/device/numa_node && mount --bind /tmp/class /sys/class"
)

DISCOVERY: tuple[Drill, ...] = (
    Drill(
        id="node-off",
        waits=True,
        fault="one node is powered off, and Slurm has noticed",
        phase="discovery",
        nodes=4,
        inject=(("off", "n1"),),
        undo=(("boot", "n1"),),
        wait_for=("n1", "down*"),
        gate="discovery.node.state",
        subject="n1",
        outcome=Outcome.FAIL,
        says="NOT_RESPONDING",
        silent=_ALL,
    ),
    Drill(
        id="node-off-unnoticed",
        waits=True,
        fault="one node is powered off, and Slurm still calls it idle",
        phase="discovery",
        # after 12 s, as here, Slurm calls a node dead about when srun gives up; sites wait for minutes
        inject=(_edit("s/^SlurmdTimeout=.*/SlurmdTimeout=30/"), ("off", "n1")),
        undo=(("boot", "n1"), _put_back()),
        gate="discovery.node.answered",
        subject="n1",
        outcome=Outcome.FAIL,
        says="Communication connection failure",
        consequences=(("discovery.node.state", "n1"),),
    ),  # which Slurm finds out in these seconds
    Drill(
        id="gpu-missing",
        fault="one node has a GPU fewer than configured",
        phase="discovery",
        inject=(("on", "n1", "rm", "/dev/nvidia1"),),
        undo=(("on", "n1", "mknod", "-m", "666", "/dev/nvidia1", "c", "195", "1"),),
        gate="discovery.gpu.count",
        subject="n1",
        outcome=Outcome.FAIL,
        says="1",
        also=(("discovery.slurm.gres", "n1"),),
        silent=("n0",),
    ),
    Drill(
        id="boot-id-twice",
        fault="two node names lead to one kernel",
        phase="discovery",
        inject=(
            (
                "on",
                "n1",
                "bash",
                "-c",
                'mount --bind "$BRINGUP_CLUSTER/node/n0/boot_id" /proc/sys/kernel/random/boot_id',
            ),
        ),
        undo=(("on", "n1", "umount", "/proc/sys/kernel/random/boot_id"),),
        gate="discovery.node.distinct",
        subject="n1",
        outcome=Outcome.FAIL,
        says="shared by n0, n1",
        also=(("discovery.node.distinct", "n0"),),
    ),
    Drill(
        id="hostname-twice",
        fault="two nodes use one host name",
        phase="discovery",
        inject=(("on", "n1", "hostname", "n0"),),
        undo=(("on", "n1", "hostname", "n1"),),
        gate="discovery.node.hostname",
        subject="n1",
        outcome=Outcome.FAIL,
        says="shared by n0, n1",
        also=(("discovery.node.hostname", "n0"),),
    ),
    _clock_off("clock-off", "n1", ("n0", "n2", "n3")),
    _clock_off("clock-off-reference", "n0", ("n1", "n2", "n3")),  # the others are measured against it
    Drill(
        id="kernel-log-unreadable",
        fault="the kernel log of one node cannot be read",
        phase="discovery",
        inject=(("on", "n1", "mv", "/dev/kmsg", "/dev/kmsg.away"),),
        undo=(("on", "n1", "mv", "/dev/kmsg.away", "/dev/kmsg"),),
        gate="discovery.kernel_log.xid",
        subject="n1",
        outcome=Outcome.INCOMPLETE,
        says="kernel log cannot be read",
        silent=("n0",),
    ),
    Drill(
        id="xid-79",
        fault="the kernel of one node says that a GPU fell off the bus",
        phase="discovery",
        inject=(
            (
                "on",
                "n1",
                "bash",
                "-c",
                "cp /dev/kmsg /dev/kmsg.before && "
                "echo '4,7,61000000,-;NVRM: Xid (PCI:0000:c1:00): 79, pid=0, GPU has fallen off the bus.' >>/dev/kmsg",
            ),
        ),
        undo=(("on", "n1", "mv", "/dev/kmsg.before", "/dev/kmsg"),),
        gate="discovery.kernel_log.xid",
        subject="n1",
        outcome=Outcome.FAIL,
        says="Xid 79 on PCI:0000:c1:00",
        silent=("n0",),
    ),
    Drill(
        id="shm-small",
        fault="/dev/shm of one node has 64 MiB",
        phase="discovery",
        inject=(("on", "n1", "mount", "-o", "remount,size=64m", "/dev/shm"),),
        undo=(("on", "n1", "mount", "-o", "remount,size=2g", "/dev/shm"),),
        gate="discovery.shm",
        subject="n1",
        outcome=Outcome.FAIL,
        says="GiB",
        between=(0.06, 0.065),
        silent=("n0",),
    ),
    Drill(
        id="nofile-low",
        fault="slurmd of one node lets tasks open 256 files",
        phase="discovery",
        inject=(("on", "n1", "bash", "-c", 'prlimit --nofile=256 --pid "$(<"$BRINGUP_CLUSTER/run/slurmd.n1.pid")"'),),
        undo=(("slurmd", "n1", "stop"), ("slurmd", "n1", "start")),
        gate="discovery.nofile",
        subject="n1",
        outcome=Outcome.FAIL,
        says="256",
        silent=("n0",),
    ),
    _drift(
        "kernel-drift",
        "one node runs another kernel",
        "discovery.kernel",
        "/proc/sys/kernel/osrelease",
        "echo 5.15.0-other >/tmp/altered",
        "5.15.0-other",
    ),
    _drift(
        "os-drift",
        "one node runs another release of the system",
        "discovery.os",
        "/etc/os-release",
        "sed -i 's/^PRETTY_NAME=.*/PRETTY_NAME=Older/' /tmp/altered",
        "Older",
    ),
    _drift(
        "munge-drift",
        "one node has another build of libmunge",
        "discovery.library.libmunge",
        _LIBMUNGE,
        "echo >>/tmp/altered",
        "3 of 4 have",
    ),
    _drift(
        "libc-drift",
        "one node has another build of libc",
        "discovery.library.libc",
        _LIBC,
        "echo >>/tmp/altered",
        "3 of 4 have",
    ),
    _drift(
        "cpu-drift",
        "one node has fewer CPUs online",
        "discovery.cpu.count",
        "/sys/devices/system/cpu/online",
        "echo 0 >/tmp/altered",
        "3 of 4 have",
    ),
    _drift(
        "sockets-drift",
        "one node has its cores on one socket more",
        "discovery.cpu.topology",
        "/sys/devices/system/cpu/cpu0/topology/physical_package_id",
        "echo 9 >/tmp/altered",
        "3 of 4 have",
    ),
    _drift(
        "memory-drift",
        "one node has half the memory",
        "discovery.memory",
        "/proc/meminfo",
        "awk '/^MemTotal/ { $2 = int($2 / 2) } { print }' /proc/meminfo >/tmp/altered",
        "the median is",
    ),
    Drill(
        id="mount-drift",
        fault="one node has mounted the checkout with another option",
        phase="discovery",
        nodes=4,
        inject=(("on", "n1", "bash", "-c", 'mount --bind "$PWD" "$PWD" && mount -o remount,bind,nosuid "$PWD"'),),
        undo=(("on", "n1", "bash", "-c", 'folder=$PWD; cd / && umount -l "$folder"'),),
        gate="discovery.mount",
        subject="n1",
        outcome=Outcome.FAIL,
        says="nosuid",
        silent=_ALL,
    ),
    Drill(
        id="rdma-port-extra",
        fault="one node has an RDMA port that the others have not",
        phase="discovery",
        nodes=4,
        inject=(("on", "n1", "bash", "-c", _FAKE_RDMA),),
        undo=(("on", "n1", "umount", "/sys/class"),),
        gate="discovery.rdma.same",
        subject="n1",
        outcome=Outcome.FAIL,
        says="mlx5_0:1: ACTIVE LinkUp 400 Gb/sec",
        silent=_ALL,
    ),
    Drill(
        id="task-plugin-missing",
        fault="Slurm runs without task/cgroup and proctrack/cgroup",
        phase="discovery",
        unconfined=True,
        environment=(("BRINGUP_PROFILE", "local-cpu"),),
        gate="discovery.slurm.task_plugin",
        subject="job",
        outcome=Outcome.FAIL,
        says="TaskPlugin = ",  # task/none; Slurm 24.11 and later print (null) for it
        also=(("discovery.slurm.proctrack", "job"),),
    ),
    _configured(
        "devices-unconfined",
        "cgroup.conf does not confine devices",
        "s/^ConstrainDevices=.*/ConstrainDevices=no/",
        "cgroup.conf",
        "discovery.slurm.confines_devices",
        Outcome.FAIL,
        "no",
    ),
    _configured(
        "cores-unconfined",
        "cgroup.conf does not confine cores",
        "s/^ConstrainCores=.*/ConstrainCores=no/",
        "cgroup.conf",
        "discovery.slurm.confines_cores",
        Outcome.WARN,
        "no",
    ),
    _configured(
        "memory-unconfined",
        "cgroup.conf does not confine memory",
        "s/^ConstrainRAMSpace=.*/ConstrainRAMSpace=no/",
        "cgroup.conf",
        "discovery.slurm.confines_memory",
        Outcome.WARN,
        "no",
    ),
    _configured(
        "nodes-return-unseen",
        "a node that crashed takes jobs again by itself",
        "s/^ReturnToService=.*/ReturnToService=2/",
        "slurm.conf",
        "discovery.slurm.return_to_service",
        Outcome.WARN,
        "2",
    ),
    _configured(
        "dead-node-kept",
        "a dead node is kept for an hour",
        "s/^SlurmdTimeout=.*/SlurmdTimeout=3600/",
        "slurm.conf",
        "discovery.slurm.slurmd_timeout",
        Outcome.WARN,
        "3600",
    ),
)
