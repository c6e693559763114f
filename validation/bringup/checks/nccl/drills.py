"""Faults of collectives and of links between nodes. Data only."""

from __future__ import annotations

from bringup.checks.faults import DRIVER_OF_N1, NO_DRIVER_ON_N1
from bringup.plan.drill import Drill
from bringup.records import Outcome


def _slow(rate: str) -> tuple[str, ...]:
    return ("tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64kb", "latency", "50ms")


_NORMAL = ("tc", "qdisc", "del", "dev", "eth0", "root")


_FAKE_RDMA = (
    "mount -t tmpfs tmpfs /sys/class && mkdir -p /sys/class/infiniband/mlx5_0/ports/1 && "
    "echo '4: ACTIVE' >/sys/class/infiniband/mlx5_0/ports/1/state"
)


def _rename(old: str, new: str) -> tuple[str, ...]:
    return ("sh", "-c", f"ip link set {old} down && ip link set {old} name {new} && ip link set {new} up")


_TO_N0 = ("ip", "dst", "10.77.1.10/32")


_SLOW_TO_N0 = (
    ("on", "n1", "tc", "qdisc", "add", "dev", "eth0", "root", "handle", "1:", "htb", "default", "10"),
    ("on", "n1", "tc", "class", "add", "dev", "eth0", "parent", "1:", "classid", "1:10", "htb", "rate", "10gbit"),
    (
        "on",
        "n1",
        "tc",
        "class",
        "add",
        "dev",
        "eth0",
        "parent",
        "1:",
        "classid",
        "1:20",
        "htb",
        "rate",
        "50mbit",
        "burst",
        "32k",
    ),
    (
        "on",
        "n1",
        "tc",
        "filter",
        "add",
        "dev",
        "eth0",
        "protocol",
        "ip",
        "parent",
        "1:",
        "prio",
        "1",
        "u32",
        "match",
        *_TO_N0,
        "flowid",
        "1:20",
    ),
)


def _drop(rule: str) -> tuple[str, ...]:
    """Packets into n1 that match the rule are lost."""
    return (
        "on",
        "n1",
        "nft",
        f"table inet drill {{ chain in {{ type filter hook input priority 0; {rule} drop; }}; }}",
    )


# on n0: whom it lets in (n1, on the ports of the pairs) is slow or not in turn
_EVERY_SECOND = (
    "table inet drill { set slow { type inet_service; flags dynamic; }; "
    "chain out { type filter hook output priority 0; ip daddr 10.77.1.11 tcp sport 20000-32767 "
    "tcp flags & (syn|ack) == (syn|ack) numgen inc mod 2 == 0 add @slow { tcp dport }; }; "
    "chain in { type filter hook input priority 0; ip saddr 10.77.1.11 tcp sport @slow "
    "limit rate over 2 mbytes/second burst 128 kbytes drop; }; }"
)


_NO_DROP = ("on", "n1", "nft", "delete", "table", "inet", "drill")


_OTHERS = ("n0", "n2", "n3")


_SLOWEST = (("nccl.pair.slowest", "job"),)  # the fleet's slowest pair is this one


_LINKS = ("n0--n2", "n0--n3", "n2--n3", "n1--n2", "n1--n3")


# a frame forwarder between n1's end of the cable and the bridge: the kernel may have no netem
_DELAY = (
    "ip link add dl0 type veth peer name dl1 && ip link set dl0 master br0 up && ip link set dl1 up && "
    "ip link set vn1 nomaster && { setsid python3 infrastructure-validation/local-cluster/delay_link.py vn1 dl1 120 "
    "</dev/null >/dev/null 2>&1 & }"
)


DRILLS: tuple[Drill, ...] = (
    Drill(
        id="name-leads-elsewhere",
        waits=True,
        fault="on one node the name of another one has a wrong address",
        phase="nccl_pairwise",
        nodes=4,
        inject=(
            (
                "on",
                "n1",
                "bash",
                "-c",
                "sed 's/^10.77.1.10 /10.77.1.99 /' /etc/hosts >/tmp/hosts && mount --bind /tmp/hosts /etc/hosts",
            ),
        ),
        undo=(("on", "n1", "umount", "/etc/hosts"),),
        gate="nccl.pair.link",
        subject="n0--n1",
        outcome=Outcome.FAIL,
        says="no answer",
        consequences=(("nccl.pair.slowest", "job"),),
    ),
    Drill(
        id="one-way-loss",
        waits=True,
        fault="one node loses 15 of 100 packets that it sends, and none that it gets",
        phase="nccl_pairwise",
        nodes=4,
        inject=(
            (
                "on",
                "n1",
                "nft",
                "table inet drill { chain out { type filter hook output priority 0; "
                'oif "eth0" numgen random mod 100 < 15 drop; }; }',
            ),
        ),
        undo=(("on", "n1", "nft", "delete", "table", "inet", "drill"),),
        gate="nccl.pair.node.latency",
        subject="n1",
        outcome=Outcome.FAIL,
        says="us",
        between=(1e5, 2e6),
        consequences=(("nccl.pair.node", "n1"), ("nccl.pair.slowest", "job"), ("nccl.pair.link*", "*n1*")),
    ),
    # with a fabric: seen nowhere yet, there was none
    Drill(
        id="infiniband-left-out",
        fault="NCCL is told to leave InfiniBand alone",
        phase="nccl_scaling",
        where="anywhere",
        environment=(("NCCL_IB_DISABLE", "1"),),
        needs_expected=("nccl.transport", "rdma-verbs"),
        gate="nccl.transport",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        says="Socket",
        consequences=(("nccl.*", "*"),),
    ),
    Drill(
        id="nvlink-left-out",
        fault="NCCL is told to leave the direct way between GPUs alone",
        phase="nccl_scaling",
        where="anywhere",
        environment=(("NCCL_P2P_DISABLE", "1"),),
        needs_expected=("discovery.gpu.nvlinks", "[1-9]"),
        gate="nccl.all_reduce.busbw",
        subject="1-node",
        outcome=Outcome.FAIL,
        says="GB/s",
        consequences=(("nccl.*", "*"),),
    ),
    Drill(
        id="nic-left-out",
        fault="NCCL is told to leave one NIC alone",
        phase="nccl_scaling",
        where="anywhere",
        environment=(("NCCL_IB_HCA", "^=mlx5_0"),),
        needs_expected=("nccl.transport", "rdma-verbs"),
        gate="nccl.nics",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        says="",
        between=(1, 64),
        consequences=(("nccl.*", "2-nodes"),),
    ),
    Drill(
        id="slow-link",
        fault="one node's link carries 100 Mbit/s",
        phase="nccl_monitoring",
        inject=(("on", "n1", *_slow("100mbit")),),
        undo=(("on", "n1", *_NORMAL),),
        gate="nccl.all_reduce.busbw",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        says="GB/s",
        between=(0.004, 0.0125),
        also=(
            ("nccl.all_gather.busbw", "2-nodes"),
            ("nccl.reduce_scatter.busbw", "2-nodes"),
            ("nccl.all_to_all.busbw", "2-nodes"),
        ),
    ),
    Drill(
        id="separate-communicators",
        fault="the ranks of each node form a communicator of their own",
        phase="nccl_scaling",
        environment=(("BRINGUP_DRILL", "separate-communicators"),),
        where="anywhere",
        gate="nccl.ranks",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        says="2",
        also=(("nccl.hosts", "2-nodes"), ("nccl.devices", "2-nodes")),
    ),
    Drill(
        id="ranks-share-gpu",
        fault="one node has a GPU fewer than ranks, so that two of them take the same one",
        phase="nccl_monitoring",
        inject=(("on", "n1", "rm", "/dev/nvidia1"),),
        undo=(("on", "n1", "mknod", "-m", "666", "/dev/nvidia1", "c", "195", "1"),),
        gate="nccl.devices",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        says="2 ranks have nvidia0",
    ),
    Drill(
        id="clock-not-compared",
        fault="one node cannot ask for the time, so that its samples stand at its own",
        phase="nccl_monitoring",
        nodes=4,
        environment=(("BRINGUP_DRILL", "clock-deaf:n1"),),
        where="anywhere",
        silent=("n0", "n2", "n3"),
        gate="nccl.monitor.clock",
        subject="n1",
        outcome=Outcome.INCOMPLETE,
        says="Connection refused",
    ),
    Drill(
        id="collectives-on-cpu",
        fault="one node has a driver that lists a GPU, and torch sees none",
        phase="nccl_monitoring",
        inject=DRIVER_OF_N1,
        undo=NO_DRIVER_ON_N1,
        gate="nccl.device.fallback",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        says="first rank 2 on n1",
        consequences=(("nccl.devices", "2-nodes"), ("nccl.monitor.*", "n1")),
    ),
    Drill(
        id="wrong-value",
        fault="one rank contributes wrong values",
        phase="nccl_monitoring",
        environment=(("BRINGUP_DRILL", "wrong-value:2"),),
        where="anywhere",
        silent=("n0/rank0", "n0/rank1", "n1/rank3"),
        gate="nccl.rank.wrong_values",
        subject="n1/rank2",
        outcome=Outcome.FAIL,
        says="in all_reduce, all_gather, reduce_scatter, all_to_all",
        also=(("nccl.wrong_values", "2-nodes"),),
    ),
    Drill(
        id="slow-rank",
        fault="one rank is slow in its own memory",
        phase="nccl_monitoring",
        environment=(("BRINGUP_DRILL", "slow-rank:1"),),
        where="anywhere",
        silent=("n0/rank0", "n1/rank2", "n1/rank3"),
        gate="nccl.rank.local_time",
        subject="n0/rank1",
        outcome=Outcome.FAIL,
        says="",
        between=(2, 1e6),
    ),
    Drill(
        id="rank-exits",
        fault="one rank ends in the middle of the collectives",
        phase="nccl_monitoring",
        environment=(("BRINGUP_DRILL", "exit-rank:3"),),
        where="anywhere",
        gate="nccl.step",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        says="Exited with exit code 3",
    ),
    Drill(
        id="curve-dip",
        fault="one size in the middle is slow",
        phase="nccl_monitoring",
        environment=(("BRINGUP_DRILL", "slow-size:all_reduce@middle"),),
        where="anywhere",
        gate="nccl.curve.dip",
        subject="2-nodes",
        outcome=Outcome.WARN,
        says="all_reduce at 4MiB",
    ),
    Drill(
        id="curve-falls",
        fault="the largest size is slow",
        phase="nccl_monitoring",
        environment=(("BRINGUP_DRILL", "slow-size:broadcast@largest"),),
        where="anywhere",
        gate="nccl.curve.plateau",
        subject="2-nodes",
        outcome=Outcome.WARN,
        says="broadcast at 16MiB",
    ),
    Drill(
        id="latency",
        fault="small messages take two seconds",
        phase="nccl_monitoring",
        environment=(("BRINGUP_DRILL", "slow-size:all_reduce@smallest"),),
        where="anywhere",
        gate="nccl.all_reduce.latency",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        says="us",
        between=(1.9e6, 2e7),
    ),
    Drill(
        id="other-interface",
        fault="one node's traffic takes an interface that the profile does not name",
        phase="nccl_monitoring",
        inject=(("on", "n1", *_rename("eth0", "eth9")),),
        undo=(("on", "n1", *_rename("eth9", "eth0")),),
        gate="nccl.transport",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        says="tcp:eth9",
    ),
    Drill(
        id="rdma-bypassed",
        fault="one node has an active RDMA device that is not used",
        phase="nccl_monitoring",
        inject=(("on", "n1", "sh", "-c", _FAKE_RDMA),),
        undo=(("on", "n1", "umount", "/sys/class"),),
        gate="nccl.rdma.bypassed",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        says="n1: mlx5_0",
    ),
    Drill(
        id="monitor-stops",
        fault="the sampler of one node ends early",
        phase="nccl_monitoring",
        environment=(("BRINGUP_DRILL", "stop-monitor:n1"),),
        where="anywhere",
        silent=("n0",),
        gate="nccl.monitor.coverage",
        subject="n1",
        outcome=Outcome.FAIL,
        says="1 samples",
    ),
    Drill(
        id="monitor-busy",
        fault="the sampler of one node takes half a core",
        phase="nccl_monitoring",
        environment=(("BRINGUP_DRILL", "busy-monitor:n1"),),
        where="anywhere",
        silent=("n0",),
        gate="nccl.monitor.overhead",
        subject="n1",
        outcome=Outcome.FAIL,
        says="of one core",
        between=(5, 100),
        consequences=(("nccl.monitor.coverage", "n1"),),
    ),
    Drill(
        id="slow-sender",
        fault="one node sends at 50 Mbit/s",
        phase="nccl_pairwise",
        nodes=4,
        inject=(("on", "n1", *_slow("50mbit")),),
        undo=(("on", "n1", *_NORMAL),),
        silent=(*_OTHERS, *_LINKS, "n0--n1"),
        gate="nccl.pair.node",
        subject="n1",
        outcome=Outcome.FAIL,
        says="sends at 0.0…",
        also=(("nccl.pair.slowest", "job"),),
    ),
    Drill(
        id="slow-receiver",
        fault="one node takes in no more than 6 MB/s",
        phase="nccl_pairwise",
        nodes=4,
        inject=(_drop('iif "eth0" limit rate over 6 mbytes/second burst 512 kbytes'),),
        undo=(_NO_DROP,),
        silent=(*_OTHERS, *_LINKS, "n0--n1"),
        gate="nccl.pair.node",
        subject="n1",
        outcome=Outcome.FAIL,
        says="receives at 0.0…",
        also=(("nccl.pair.slowest", "job"),),
    ),
    Drill(
        id="slow-pair",
        fault="one node sends at 50 Mbit/s to one other node only",
        phase="nccl_pairwise",
        nodes=4,
        inject=_SLOW_TO_N0,
        undo=(("on", "n1", *_NORMAL),),
        silent=(*_OTHERS, "n1", *_LINKS),
        gate="nccl.pair.link",
        subject="n0--n1",
        outcome=Outcome.FAIL,
        says="n1->n0",
        also=_SLOWEST,
    ),
    Drill(
        id="unsteady-pair",
        fault="every second connection from one node to one other node carries 2 MB/s",
        phase="nccl_pairwise",
        nodes=4,
        inject=(("on", "n0", "nft", _EVERY_SECOND),),
        undo=(("on", "n0", "nft", "delete", "table", "inet", "drill"),),
        silent=(*_OTHERS, "n1", *_LINKS),
        gate="nccl.pair.link.steady",
        subject="n0--n1",
        outcome=Outcome.WARN,
        says="n1->n0 at 0.0…",
        consequences=_SLOWEST,
    ),
    Drill(
        id="dead-pair",
        waits=True,
        fault="two nodes cannot reach each other",
        phase="nccl_pairwise",
        nodes=4,
        inject=(_drop("ip saddr 10.77.1.10 tcp sport 20000-39999"),),
        undo=(_NO_DROP,),
        silent=(*_OTHERS, "n1", *_LINKS),
        gate="nccl.pair.link",
        subject="n0--n1",
        outcome=Outcome.FAIL,
        says="no answer",
        consequences=_SLOWEST,
    ),
    Drill(
        id="slow-delay",
        waits=True,
        fault="what one node sends and gets takes 120 ms longer",
        phase="nccl_pairwise",
        nodes=4,
        inject=(("sh", "bash", "-c", _DELAY),),
        undo=(("sh", "bash", "-c", "ip link del dl0; ip link set vn1 master br0"),),
        gate="nccl.pair.node.latency",
        subject="n1",
        outcome=Outcome.FAIL,
        says="us",
        between=(1e5, 2e6),
        consequences=(*_SLOWEST, ("nccl.pair.node", "n1"), ("nccl.pair.link*", "*n1*")),
    ),
    Drill(
        id="packet-loss",
        waits=True,
        fault="one node loses 15 of 100 packets",
        phase="nccl_pairwise",
        nodes=4,
        inject=(_drop('iif "eth0" numgen random mod 100 < 15'),),
        undo=(_NO_DROP,),
        silent=(*_OTHERS, "n2--n3", "n0--n2"),
        gate="nccl.pair.node.latency",
        subject="n1",
        outcome=Outcome.FAIL,
        says="us",
        between=(1e5, 2e6),
        also=(("nccl.pair.node", "n1"),),
        consequences=(*_SLOWEST, ("nccl.pair.link*", "*n1*")),
    ),
    Drill(
        id="slow-pair-latency",
        waits=True,
        fault="one node loses 15 of 100 packets from one other node only",
        phase="nccl_pairwise",
        nodes=4,
        inject=(_drop("ip saddr 10.77.1.10 numgen random mod 100 < 15"),),
        undo=(_NO_DROP,),
        silent=("n2", "n3", *_LINKS),
        gate="nccl.pair.link.latency",
        subject="n0--n1",
        outcome=Outcome.FAIL,
        says="us",
        between=(1e5, 2e6),
        consequences=(*_SLOWEST, ("nccl.pair.link*", "n0--n1")),
    ),
)
