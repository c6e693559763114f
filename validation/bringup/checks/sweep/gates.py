"""Gates of the sweep, in which every node works by itself. Data only."""

from __future__ import annotations

from bringup.checks import device
from bringup.checks.sweep import guides
from bringup.plan.gate import Fixed, FromProfile, Gate, Requested
from bringup.plan.guide import Guide
from bringup.plan.rules import ValueRule
from bringup.records import Outcome

_ONLY = ("node_sweep",)
_WHOLE = ("sweep.ranks",)


_BOTH = (Outcome.FAIL, Outcome.INCOMPLETE)


def _none(
    gate: str,
    proves: str,
    guide: Guide,
    *,
    claim: str = "",
    bears_on: str = "",
    ranks: int = 1,
    stops: tuple[Outcome, ...] = _BOTH,
) -> Gate:
    """A count that has to be 0 on every node."""
    return Gate(
        id=gate,
        phases=_ONLY,
        claims=(claim,) if claim else (),
        bears_on=(bears_on,) if bears_on else (),
        per="node",
        stops=stops,
        proves=proves,
        unit="count",
        rule="equals",
        expect=Fixed(0),
        min_ranks_per_node=ranks,
        guide=guide,
    )


def _share(
    gate: str, proves: str, guide: Guide, needs: tuple[str, ...], *, claim: str, nodes: int = 1, ranks: int = 1
) -> Gate:
    rule: ValueRule = "at_least"
    return Gate(
        id=gate,
        phases=_ONLY,
        claims=(claim,),
        per="node",
        proves=proves,
        unit="ratio",
        rule=rule,
        expect=FromProfile(),
        needs=needs,
        min_nodes=nodes,
        min_ranks_per_node=ranks,
        guide=guide,
    )


GATES: tuple[Gate, ...] = (
    Gate(
        id="sweep.ranks",
        phases=_ONLY,
        bears_on=("gpus-hold",),
        per="node",
        proves="a rank on each GPU finished every part",
        unit="count",
        rule="equals",
        expect=Requested("gpus_per_node"),
        guide=guides.RANKS,
    ),
    *device.gates("sweep", _ONLY, bears_on=("gpus-hold",), per="node"),
    _none(
        "sweep.step.cpu",
        "each CPU task gave the same bits each time, and the same as most tasks on CPUs of its kind",
        guides.SAME_BITS,
        claim="same-bits",
    ),
    _none(
        "sweep.step.gpu",
        "each GPU gave the same bits each time, and the same as most GPUs of its kind",
        guides.SAME_BITS,
        claim="same-bits",
    ),
    _none("sweep.load.wrong_values", "every product under load was the exact one", guides.LOAD, claim="gpus-hold"),
    _share(
        "sweep.load.drift",
        "the node's GPUs are as fast at the end of the load as at its start",
        guides.LOAD,
        _WHOLE,
        claim="gpus-hold",
    ),
    _share(
        "sweep.load.peers",
        "under load the node's slowest GPU is about as fast as those of the other nodes",
        guides.LOAD,
        (*_WHOLE, "sweep.load.wrong_values"),
        claim="gpus-hold",
        nodes=2,
    ),
    _none(
        "sweep.load.pcie",
        "under load the PCIe link of every GPU had the generation and the lanes that it and its slot can have",
        guides.PCIE,
        bears_on="gpus-hold",
        stops=(Outcome.FAIL,),  # a site's container may lack pynvml, and its GPUs may train
    ),
    _none(
        "sweep.inside.wrong_values",
        "every collective among the GPUs of the node gave the right values",
        guides.INSIDE,
        claim="inside-every-node",
        ranks=2,
    ),
    _share(
        "sweep.inside.peers",
        "a large all_reduce inside the node is about as fast as inside the other nodes",
        guides.INSIDE,
        (*_WHOLE, "sweep.inside.wrong_values"),
        claim="inside-every-node",
        nodes=2,
        ranks=2,
    ),
    Gate(
        id="sweep.dcgm.gpus",
        phases=_ONLY,
        bears_on=("gpus-hold",),
        per="node",
        proves="NVIDIA's diagnostic (dcgmi diag) tested every GPU of the node",
        unit="count",
        rule="at_least",
        expect=Requested("gpus_per_node"),
        stops=(),
        guide=guides.DCGM,
    ),
    Gate(
        id="sweep.dcgm.failed",
        phases=_ONLY,
        bears_on=("gpus-hold",),
        per="node",
        proves="no test of NVIDIA's diagnostic failed on any GPU, at the requested level",
        unit="count",
        rule="equals",
        expect=Fixed(0),
        stops=(Outcome.FAIL,),  # a site may do without DCGM, and its GPUs may train
        guide=guides.DCGM,
    ),
    Gate(
        id="sweep.dcgm.doubtful",
        phases=_ONLY,
        bears_on=("gpus-hold",),
        per="node",
        severity=Outcome.WARN,
        proves="no test of NVIDIA's diagnostic was skipped, warned, or passed with a warning",
        unit="count",
        rule="equals",
        expect=Fixed(0),
        guide=guides.DCGM,
    ),
)
