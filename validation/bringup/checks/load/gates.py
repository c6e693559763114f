"""Gates of the counters of every node, before and after a load. Data only."""

from __future__ import annotations

from bringup.checks.load import guides
from bringup.plan.gate import Fixed, FromProfile, Gate
from bringup.plan.phases import PHASES
from bringup.records import Outcome

_LOADS = tuple(stem for stem in PHASES if stem not in ("discovery", "smoke"))
_TOGETHER = tuple(stem for stem in _LOADS if stem != "node_sweep")  # where nodes talk to each other
_CLAIM = ("quiet-under-load",)


def _none(gate: str, proves: str, *, claims: tuple[str, ...] = (), warns: bool = False) -> Gate:
    """A count that must be 0 on every node. Some sites hide the counters from users; the later phases may still run."""
    return Gate(
        id=gate,
        phases=_LOADS,
        claims=claims,
        bears_on=() if claims else _CLAIM,
        per="node",
        severity=Outcome.WARN if warns else Outcome.FAIL,
        stops=(Outcome.FAIL,),
        proves=proves,
        unit="count",
        rule="equals",
        expect=Fixed(0),
        guide=guides.COUNTERS,
    )


def _share(gate: str, proves: str) -> Gate:
    """A share that should be small. It only warns, because a busy network also loses packets."""
    return Gate(
        id=gate,
        phases=_TOGETHER,
        bears_on=("over-the-fabric",),
        per="node",
        severity=Outcome.WARN,
        stops=(Outcome.FAIL,),
        proves=proves,
        unit="ratio",
        rule="at_most",
        expect=FromProfile(),
        min_nodes=2,
        guide=guides.SENT_AGAIN,
    )


GATES: tuple[Gate, ...] = (
    _none("load.kernel_log", "under load the GPU driver wrote no message that asks for action"),
    _none(
        "load.gpu_faults",
        "under load no GPU was lost, and none counted an uncorrected memory error or a lost NVLink",
        claims=_CLAIM,
    ),
    _none("load.gpu_corrected", "under load no GPU corrected a memory error, and none repeated a transfer", warns=True),
    _none(
        "load.node_faults",
        "under load no port of an RDMA device was lost or went down, and host memory had no uncorrected error",
        claims=_CLAIM,
    ),
    _none(
        "load.node_corrected",
        "under load no port or network card counted an error, host memory corrected none, and no CPU was throttled",
        warns=True,
    ),
    _share("load.tcp_sent_again", "under load the node retransmitted few of its TCP segments"),
    _share("load.rdma_sent_again", "under load no RDMA port of the node retransmitted many of its packets"),
)
