"""Faults of collectives, and of the sampler beside them. Data only. Those of links between nodes: pair_drills.py."""

from __future__ import annotations

from typing import Any

from bringup.checks.faults import DRIVER_OF_N1, NO_DRIVER_ON_N1
from bringup.checks.nccl import pair_drills, variant_drills
from bringup.checks.simulated import gpu, under_load
from bringup.plan.drill import FOUR_NODES, Drill, NoDrill
from bringup.records import Outcome

_FAKE_RDMA = (
    "mount -t tmpfs tmpfs /sys/class && mkdir -p /sys/class/infiniband/mlx5_0/ports/1 && "
    "echo '4: ACTIVE' >/sys/class/infiniband/mlx5_0/ports/1/state"
)


def _rename(old: str, new: str) -> tuple[str, ...]:
    return ("on", "n1", "sh", "-c", f"ip link set {old} down && ip link set {old} name {new} && ip link set {new} up")


def _on_all(id: str, fault: str, gate: str, says: str, **rest: Any) -> Drill:
    """While collectives run on all nodes. A gate of a scale fails on the only scale there is."""
    settled = {"phase": "nccl_monitoring", "subject": "2-nodes", "outcome": Outcome.FAIL}
    return Drill(**{**settled, **rest}, id=id, fault=fault, gate=gate, says=says)


def _by_the_program(
    id: str, fault: str, made: str, gate: str, says: str, *, patience: int | None = None, **rest: Any
) -> Drill:
    """A fault that the probe itself makes, so that it stays inside one job. made: its name and place in
    $BRINGUP_DRILL. patience: seconds that a collective may wait, where ranks hang."""
    environment = (("BRINGUP_DRILL", made), *((("BRINGUP_HANG_S", str(patience)),) if patience else ()))
    return _on_all(id, fault, gate, says, **rest, where="anywhere", environment=environment)


def _left_out(id: str, fault: str, variable: tuple[str, str], gate: str, says: str, **rest: Any) -> Drill:
    """NCCL is told not to use a part of the fabric. Nobody has performed these yet: no fabric was there."""
    return Drill(
        **{"subject": "2-nodes", "outcome": Outcome.FAIL, "consequences": (("nccl.*", "*"),), **rest},
        id=id,
        fault=fault,
        phase="nccl_scaling",
        where="anywhere",
        environment=(variable,),
        gate=gate,
        says=says,
    )


_RDMA = ("nccl.transport", "rdma-verbs")

_FABRIC = (
    _left_out(
        "infiniband-left-out",
        "NCCL is set not to use InfiniBand",
        ("NCCL_IB_DISABLE", "1"),
        "nccl.transport",
        "Socket",
        needs_expected=_RDMA,
    ),
    _left_out(
        "nvlink-left-out",
        "NCCL is set not to use the direct path between GPUs",
        ("NCCL_P2P_DISABLE", "1"),
        "nccl.all_reduce.busbw",
        "GB/s",
        subject="1-node",
        needs_expected=("discovery.gpu.nvlinks", "[1-9]"),
    ),
    _left_out(
        "nic-left-out",
        "NCCL is set not to use one NIC",
        ("NCCL_IB_HCA", "^=mlx5_0"),
        "nccl.nics",
        "",
        between=(1, 64),
        needs_expected=_RDMA,
        consequences=(("nccl.*", "2-nodes"),),
    ),
)

_COMMUNICATOR = (
    Drill(
        id="separate-communicators",
        fault="the ranks of each node form a communicator of their own",
        phase="nccl_scaling",
        environment=(("BRINGUP_DRILL", "separate-communicators"),),
        where="anywhere",
        gate="nccl.ranks",
        subject="2-nodes",
        outcome=Outcome.FAIL,
        value="{gpus}",
        also=(("nccl.hosts", "2-nodes"), ("nccl.devices", "2-nodes")),
    ),
    _on_all(
        "ranks-share-gpu",
        "one node has fewer GPUs than ranks, so two ranks take the same one",
        "nccl.devices",
        "2 ranks have nvidia0",
        inject=(("on", "n1", "rm", "/dev/nvidia1"),),
        undo=(("on", "n1", "mknod", "-m", "666", "/dev/nvidia1", "c", "195", "1"),),
    ),
    _on_all(
        "collectives-on-cpu",
        "one node has a driver that lists a GPU, and torch sees none",
        "nccl.device.fallback",
        "first rank 2 on n1",
        inject=DRIVER_OF_N1,
        undo=NO_DRIVER_ON_N1,
        consequences=(("nccl.devices", "2-nodes"), ("nccl.monitor.*", "n1")),
    ),
    _by_the_program(
        "rank-exits",
        "one rank ends in the middle of the collectives",
        "exit-rank:{rank3}",
        "nccl.step",
        "Exited with exit code 3",
    ),
    _by_the_program(
        "collective-hung",
        "one rank never joins a collective",
        "hang-rank:{rank2}",
        "nccl.rank.finished",
        "after the barrier before all_to_all@8KiB",
        subject="{n1}/rank{rank2}",
        value="hung",
        patience=20,
        consequences=(("nccl.step", "2-nodes"),),
    ),
    _by_the_program(
        "collective-frozen",
        "one rank is stopped in a collective, and is not resumed",
        "freeze-rank:{rank3}",
        "nccl.rank.finished",
        "said nothing, while",
        subject="{n1}/rank{rank3}",
        value="silent",
        patience=20,
        consequences=(("nccl.step", "2-nodes"),),
    ),
    Drill(
        id="pair-hung",
        fault="one rank never joins a collective of a pair of nodes",
        phase="nccl_pairwise",
        where="anywhere",
        environment=(
            ("BRINGUP_DRILL", "hang-rank:{rank2}"),
            ("BRINGUP_HANG_S", "20"),
            ("BRINGUP_PAIR_ENGINE", "collectives"),
            ("BRINGUP_PAIR_REPEATS", "1"),
        ),
        gate="nccl.pair.link",
        subject="{n0}--{n1}",
        outcome=Outcome.INCOMPLETE,
        says="{n1}/rank{rank2} hung",
    ),
)

_RANKS = (
    _by_the_program(
        "wrong-value",
        "one rank contributes wrong values",
        "wrong-value:{rank2}",
        "nccl.rank.wrong_values",
        "in all_reduce, all_gather, reduce_scatter, all_to_all",
        subject="{n1}/rank{rank2}",
        silent=("{n0}/rank{rank0}", "{n0}/rank{rank1}", "{n1}/rank{rank3}"),
        also=(("nccl.wrong_values", "2-nodes"),),
    ),
    _by_the_program(
        "slow-rank",
        "one rank is slow in its own memory",
        "slow-rank:{rank1}",
        "nccl.rank.local_time",
        "",
        subject="{n0}/rank{rank1}",
        silent=("{n0}/rank{rank0}", "{n1}/rank{rank2}", "{n1}/rank{rank3}"),
        between=(2, 1e6),
    ),
)

_STALLS = (
    _by_the_program(
        "collective-stopped",
        "one rank is stopped for 20 s in a collective, and goes on",
        "stop-rank:{rank2}",
        "nccl.rank.stall",
        "the process stood still",
        subject="{n1}/rank{rank2}",
        silent=("{n0}/rank{rank0}", "{n0}/rank{rank1}", "{n1}/rank{rank3}"),
        between=(19, 30),
        also=(("nccl.stall", "2-nodes"),),
    ),
)

_SPEED = (
    _on_all(
        "slow-link",
        "one node's link carries 100 Mbit/s",
        "nccl.all_reduce.busbw",
        "GB/s",
        inject=(("on", "n1", *pair_drills.slowed_to("100mbit")),),
        undo=(("on", "n1", *pair_drills.NORMAL_SPEED),),
        between=(0.004, 0.0125),
        also=(
            ("nccl.all_gather.busbw", "2-nodes"),
            ("nccl.reduce_scatter.busbw", "2-nodes"),
            ("nccl.all_to_all.busbw", "2-nodes"),
        ),
    ),
    _by_the_program(
        "curve-dip",
        "one size in the middle is slow",
        "slow-size:all_reduce@middle",
        "nccl.curve.dip",
        "all_reduce at",
        outcome=Outcome.WARN,
    ),
    _by_the_program(
        "curve-falls",
        "the largest size is slow",
        "slow-size:broadcast@largest",
        "nccl.curve.plateau",
        "broadcast at",
        outcome=Outcome.WARN,
    ),
    _by_the_program(
        "latency",
        "small messages take two seconds",
        "slow-size:all_reduce@smallest",
        "nccl.all_reduce.latency",
        "us",
        between=(1.9e6, 2e7),
    ),
)

_TRANSPORT = (
    _on_all(
        "other-interface",
        "one node's traffic takes an interface that the profile does not name",
        "nccl.transport",
        "tcp:eth9",
        inject=(_rename("eth0", "eth9"),),
        undo=(_rename("eth9", "eth0"),),
    ),
    _on_all(
        "rdma-bypassed",
        "one node has an active RDMA device that is not used",
        "nccl.rdma.bypassed",
        "n1: mlx5_0",
        inject=(("on", "n1", "sh", "-c", _FAKE_RDMA),),
        undo=(("on", "n1", "umount", "/sys/class"),),
    ),
)

_MONITOR = (
    _by_the_program(
        "monitor-stops",
        "the sampler of one node ends early",
        "stop-monitor:{n1}",
        "nccl.monitor.coverage",
        "1 samples",
        subject="{n1}",
        silent=("{n0}",),
    ),
    _by_the_program(
        "monitor-busy",
        "the sampler of one node takes half a core",
        "busy-monitor:{n1}",
        "nccl.monitor.overhead",
        "of one core",
        subject="{n1}",
        silent=("{n0}",),
        between=(5, 100),
        consequences=(("nccl.monitor.coverage", "{n1}"),),
    ),
    _by_the_program(
        "clock-not-compared",
        "one node cannot compare its clock, so its samples use its own time",
        "clock-deaf:{n1}",
        "nccl.monitor.clock",
        "Connection refused",
        shape=FOUR_NODES,
        subject="{n1}",
        silent=("{n0}", "{n2}", "{n3}"),
        outcome=Outcome.INCOMPLETE,
    ),
    under_load(
        "gpu-hot-in-collectives",
        "a GPU of one node slows down because of heat, during collectives",
        gpu("throttle"),
        "nccl.monitor.slowdown",
        phase="nccl_monitoring",
        when="raw/monitor.csv",
        says="hardware thermal",
        silent=("n0", "n2"),
    ),
)

DRILLS: tuple[Drill, ...] = (
    *_FABRIC,
    *_COMMUNICATOR,
    *_RANKS,
    *_STALLS,
    *_SPEED,
    *_TRANSPORT,
    *_MONITOR,
    *pair_drills.DRILLS,
    *variant_drills.DRILLS,
)

NO_DRILL: tuple[NoDrill, ...] = (
    NoDrill(
        gates=("nccl.gdr", "nccl.nics", "nccl.nvls"),
        reason="no InfiniBand and no NVSwitch here; on a cluster that has them, bringup drill --anywhere",
        test="checks/nccl/test_derive.py",
    ),
)
