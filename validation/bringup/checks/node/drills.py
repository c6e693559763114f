"""Faults of single nodes: off, unlike the others, a clock that is wrong, limits that are low. Data only.

Those of names: name_drills.py; of settings: setting_drills.py; of /tmp and /dev/shm: tmp_drills.py.
"""

from __future__ import annotations

from bringup.checks.faults import ALL, CLOSE_AGAIN, INVENTORY, UNNOTICED, evidence, login, put_back
from bringup.checks.node import name_drills, setting_drills, tmp_drills
from bringup.plan.drill import FOUR_NODES, Command, Drill, NoDrill
from bringup.records import Outcome

_FAKETIME = "/usr/lib/$(uname -m)-linux-gnu/faketime/libfaketime.so.1"  # where Debian's package faketime puts it


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
        shape=FOUR_NODES,
        inject=_altered(path, edit),
        undo=_restored(path),
        gate=gate,
        subject="n1",
        outcome=Outcome.FAIL,
        says=says,
        silent=ALL,
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
        shape=FOUR_NODES,
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


_OTHERS = ("n0", "n2", "n3")  # of two nodes, the other one would have nobody to be compared with


_OTHER_KEY = (
    "mkdir -m 700 /tmp/m && head -c 1024 /dev/urandom >/tmp/m/key && chmod 600 /tmp/m/key && "
    "munged --force --socket=/tmp/m/s --key-file=/tmp/m/key --pid-file=/tmp/m/pid --log-file=/tmp/m/log "
    '--seed-file=/tmp/m/seed && mount --bind /tmp/m/s "$BRINGUP_CLUSTER/run/munge.sock"'
)


_NO_GPU = ': >/tmp/gres.conf && mount --bind /tmp/gres.conf "$BRINGUP_CLUSTER/gres.conf"'


DRILLS: tuple[Drill, ...] = (
    Drill(
        id="node-off",
        waits=True,
        fault="one node is powered off, and Slurm has noticed",
        phase="discovery",
        shape=FOUR_NODES,
        inject=(("off", "n1"),),
        undo=(("boot", "n1"),),
        wait_for=("n1", "down*"),
        gate="discovery.node.state",
        subject="n1",
        outcome=Outcome.FAIL,
        says="NOT_RESPONDING",
        silent=ALL,
    ),
    Drill(
        id="node-off-unnoticed",
        waits=True,
        fault="one node is powered off, and Slurm still calls it idle",
        phase="discovery",
        # after 12 s, as here, Slurm calls a node dead about when srun gives up; sites wait for minutes
        inject=(*UNNOTICED, ("off", "n1")),
        undo=(("boot", "n1"), put_back()),
        gate="discovery.node.answered",
        subject="n1",
        outcome=Outcome.FAIL,
        says="Communication connection failure",
        consequences=(("discovery.node.state", "n1"),),
    ),  # which Slurm finds out in these seconds
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
        consequences=(("discovery.tmp.space", "n1"),),
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
        value=256,
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
        "hugepages-drift",
        "one node handles transparent huge pages differently",
        "discovery.hugepages",
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "echo 'always madvise [never]' >/tmp/altered",
        "3 of 4 have",
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
        "one node has its cores on one more socket",
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
        shape=FOUR_NODES,
        inject=(("on", "n1", "bash", "-c", 'mount --bind "$PWD" "$PWD" && mount -o remount,bind,nosuid "$PWD"'),),
        undo=(("on", "n1", "bash", "-c", 'folder=$PWD; cd / && umount -l "$folder"'),),
        gate="discovery.mount",
        subject="n1",
        outcome=Outcome.FAIL,
        says="nosuid",
        silent=ALL,
    ),
    Drill(
        id="node-drained",
        fault="one node is drained",
        phase="discovery",
        shape=FOUR_NODES,
        inject=(login("scontrol update NodeName=n1 State=DRAIN Reason=drill"),),
        undo=(login("scontrol update NodeName=n1 State=RESUME"),),
        wait_for=("n1", "drained"),
        gate="discovery.node.state",
        subject="n1",
        outcome=Outcome.FAIL,
        says="DRAIN",
        silent=_OTHERS,
    ),
    Drill(
        id="slurmd-hangs",
        waits=True,
        fault="slurmd of one node is stopped (SIGSTOP), and Slurm has noticed",
        phase="discovery",
        shape=FOUR_NODES,
        inject=(("slurmd", "n1", "pause"),),
        undo=(("slurmd", "n1", "cont"),),
        wait_for=("n1", "down*"),
        gate="discovery.node.state",
        subject="n1",
        outcome=Outcome.FAIL,
        says="NOT_RESPONDING",
        silent=_OTHERS,
    ),
    Drill(
        id="munge-key",
        waits=True,
        fault="one node has another munge key, and Slurm still calls it idle",
        phase="discovery",
        inject=(*UNNOTICED, ("on", "n1", "bash", "-c", _OTHER_KEY)),
        undo=(
            ("on", "n1", "bash", "-c", 'umount "$BRINGUP_CLUSTER/run/munge.sock"; kill "$(</tmp/m/pid)"; rm -r /tmp/m'),
            put_back(),
        ),
        gate="discovery.node.answered",
        subject="n1",
        outcome=Outcome.FAIL,
        says="slurm.munge",  # Zero Bytes were transmitted or received; 26.05: Protocol authentication error
        consequences=(("discovery.node.state", "n1"),),
    ),  # slurmctld cannot reach it either
    Drill(
        id="gres-mismatch",
        fault="slurmd of one node reports no GPU, and slurm.conf says one",
        phase="discovery",
        shape=FOUR_NODES,
        inject=(("on", "n1", "bash", "-c", _NO_GPU), ("slurmd", "n1", "stop"), ("slurmd", "n1", "start")),
        wait_for=("n1", "inval"),
        undo=(
            ("on", "n1", "bash", "-c", 'umount "$BRINGUP_CLUSTER/gres.conf"'),
            ("slurmd", "n1", "stop"),
            ("slurmd", "n1", "start"),
            login("scontrol update NodeName=n1 State=RESUME"),
        ),
        gate="discovery.node.state",
        subject="n1",
        outcome=Outcome.FAIL,
        says="INVALID_REG",
        silent=_OTHERS,
    ),
    evidence(
        "evidence-missing",
        "the evidence of the nodes never arrived",
        f"rm {INVENTORY}{CLOSE_AGAIN}",
        "discovery.node.answered",
        "{n1}",
        "no evidence",
        also=(("discovery.node.answered", "{n0}"),),
    ),
    evidence(
        "evidence-truncated",
        "the evidence of one node is cut off at the end",
        f'sed -i \'/"at": "{{n1}}", "end"/d\' {INVENTORY}{CLOSE_AGAIN}',
        "discovery.node.answered",
        "{n1}",
        "no evidence",
    ),
    evidence(
        "evidence-duplicated",
        "the evidence of the nodes is there twice",
        f"cat {INVENTORY} {INVENTORY} >raw/twice && mv raw/twice {INVENTORY}{CLOSE_AGAIN}",
        "discovery.node.answered",
        "{n1}",
        "facts, and",
        also=(("discovery.node.answered", "{n0}"),),
    ),
    *name_drills.DRILLS,
    *setting_drills.DRILLS,
    *tmp_drills.DRILLS,
)

_TEST = "checks/test_node.py"
NO_DRILL: tuple[NoDrill, ...] = (
    NoDrill(
        gates=("discovery.clock.synchronised",),
        reason="all nodes share the clock of one machine, so that profile local-cpu says that it is not applicable",
        test="checks/test_settings.py",
    ),
    NoDrill(
        gates=("discovery.python",),
        reason="there is no second interpreter here",
        test=_TEST,
    ),
    NoDrill(
        gates=("discovery.cpu.model",),
        reason="one machine is behind all nodes; the drill for memory alters a file of /proc in the same way",
        test=_TEST,
    ),
    NoDrill(
        gates=("discovery.library.libcuda", "discovery.library.libnccl", "discovery.library.libibverbs"),
        reason="these are not installed here; the drills for libc and libmunge take the same path",
        test=_TEST,
    ),
)
