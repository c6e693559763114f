"""Gates of phase 3: collectives, and the sampler that watches them. Gates of pairs: pair_gates.py. Data only."""

from __future__ import annotations

from typing import Any

from bringup.checks import device, sampled
from bringup.checks.nccl import guides, pair_gates, variant_gates
from bringup.plan.gate import Fixed, FromProfile, Gate, Requested
from bringup.records import Outcome

_NCCL = ("nccl_scaling", "nccl_monitoring")
_AT_SPEED = ("speed-inside", "speed-between")
_RANKS = ("nccl.ranks",)
_MEMBERS = ("nccl.ranks", "nccl.hosts")
_RIGHT = ("nccl.ranks", "nccl.hosts", "nccl.wrong_values")


def _gate(id: str, proves: str, **rest: Any) -> Gate:
    return Gate(id=id, proves=proves, **{"phases": _NCCL, "per": "scale", **rest})


_PROGRAM = (
    _gate(
        "nccl.step",
        "the collective program ended without an error",
        bears_on=("one-communicator",),
        unit="count",
        rule="equals",
        expect=Fixed(0),
        guide=guides.STEP,
    ),
    _gate(
        "nccl.ranks",
        "one communicator spanned all ranks (counted inside it)",
        claims=("one-communicator",),
        unit="count",
        rule="equals",
        expect=Requested("scale_ranks"),
        guide=guides.COMMUNICATOR,
    ),
    _gate(
        "nccl.hosts",
        "the ranks ran on as many different hosts as planned",
        claims=("one-communicator",),
        unit="count",
        rule="equals",
        expect=Requested("scale_nodes"),
        guide=guides.COMMUNICATOR,
    ),
    _gate(
        "nccl.devices",
        "no two ranks took one GPU (gathered inside the communicator: UUIDs; device files of placeholders)",
        claims=("gpus-bound",),
        unit="count",
        rule="equals",
        expect=Requested("scale_ranks"),
        guide=guides.COMMUNICATOR,
    ),
    *device.gates("nccl", _NCCL, ("one-communicator",), "scale"),
    _gate(
        "nccl.rank.finished",
        "the rank took part in every collective, to the last one",
        claims=("observable",),
        per="rank",
        unit="text",
        rule="equals",
        expect=Fixed("finished"),
        guide=guides.RANK,
    ),
)

_VALUES = (
    _gate(
        "nccl.wrong_values",
        "every collective gave the right result at every size",
        claims=("one-communicator",),
        unit="count",
        rule="equals",
        expect=Fixed(0),
        guide=guides.WRONG_VALUES,
    ),
    _gate(
        "nccl.rank.wrong_values",
        "no wrong value came from this rank or arrived at it alone",
        bears_on=("one-communicator",),
        per="rank",
        unit="count",
        rule="equals",
        expect=Fixed(0),
        guide=guides.WRONG_VALUES,
    ),
    _gate(
        "nccl.rank.local_time",
        "a copy inside the rank's own memory took no longer than on the other ranks",
        bears_on=("one-communicator",),
        per="rank",
        unit="ratio",
        rule="at_most",
        expect=FromProfile(),
        guide=guides.SLOW_RANK,
    ),
)

_STALLS = (
    _gate(
        "nccl.stall",
        "no repetition of a collective took seconds longer than the median of its size",
        bears_on=_AT_SPEED,
        per="wide_scale",
        unit="s",
        rule="at_most",
        expect=FromProfile(),
        stops=(),
        guide=guides.STALL,
    ),
    _gate(
        "nccl.rank.stall",
        "the rank itself never stopped for seconds in a collective",
        bears_on=_AT_SPEED,
        per="rank",
        unit="s",
        rule="at_most",
        expect=FromProfile(),
        stops=(),
        guide=guides.STALL,
    ),
)

_TRANSPORT = (
    _gate(
        "nccl.rdma.bypassed",
        "no TCP socket was used between hosts that have an active RDMA device",
        claims=("over-the-fabric",),
        min_nodes=2,
        unit="flag",
        rule="equals",
        expect=Fixed(False),
        guide=guides.TRANSPORT,
    ),
    _gate(
        "nccl.transport",
        "the bytes between nodes went over the interconnect that the profile names",
        claims=("over-the-fabric",),
        min_nodes=2,
        unit="text",
        rule="one_of",
        expect=FromProfile(),
        needs=_RANKS,
        guide=guides.TRANSPORT,
    ),
    _gate(
        "nccl.gdr",
        "the NICs read and wrote GPU memory directly, on every channel between hosts (NCCL's log: GDRDMA)",
        claims=("over-the-fabric",),
        min_nodes=2,
        unit="share",
        rule="at_least",
        expect=FromProfile(),
        needs=_RANKS,
        guide=guides.TRANSPORT,
    ),
    _gate(
        "nccl.nics",
        "NCCL used every NIC (counted on the host with the fewest, in NCCL's log)",
        claims=("over-the-fabric",),
        min_nodes=2,
        unit="count",
        rule="at_least",
        expect=FromProfile(),
        needs=_RANKS,
        guide=guides.TRANSPORT,
    ),
    _gate(
        "nccl.nvls",
        "NCCL reduced inside the NVLink switches (NCCL's log: nvls channels)",
        bears_on=("speed-inside",),
        per="wide_scale",
        unit="flag",
        rule="equals",
        expect=FromProfile(),
        needs=_RANKS,
        guide=guides.TRANSPORT,
    ),
)

_SPEED = (
    *(
        _gate(
            id,
            f"{id.split('.')[1]} reaches the expected bus bandwidth at the named size",
            claims=_AT_SPEED,
            per="wide_scale",
            unit="GB/s",
            rule="at_least",
            expect=FromProfile(),
            needs=_RIGHT,
            guide=guides.BANDWIDTH,
        )
        for id in (
            "nccl.all_reduce.busbw",
            "nccl.all_gather.busbw",
            "nccl.reduce_scatter.busbw",
            "nccl.all_to_all.busbw",
        )
    ),
    _gate(
        "nccl.all_reduce.latency",
        "a small all_reduce is as fast as expected",
        claims=_AT_SPEED,
        per="wide_scale",
        unit="us",
        rule="at_most",
        expect=FromProfile(),
        needs=_MEMBERS,
        guide=guides.CURVE,
    ),
    _gate(
        "nccl.curve.dip",
        "no size is much slower than the sizes next to it, in any collective",
        bears_on=_AT_SPEED,
        per="wide_scale",
        unit="ratio",
        rule="at_least",
        expect=FromProfile(),
        needs=_MEMBERS,
        severity=Outcome.WARN,
        guide=guides.CURVE,
    ),
    _gate(
        "nccl.curve.plateau",
        "the largest size is about as fast as the fastest, in every collective",
        bears_on=_AT_SPEED,
        per="wide_scale",
        unit="ratio",
        rule="at_least",
        expect=FromProfile(),
        needs=_MEMBERS,
        severity=Outcome.WARN,
        guide=guides.CURVE,
    ),
)


_MONITOR = (
    *sampled.gates("nccl", ("nccl_monitoring",), guides.MONITOR, quiet=("quiet-under-load",)),
    _gate(
        "nccl.monitor.clock",
        "the node's samples are on the common time axis, to half of the sampling period (clocks were compared)",
        phases=("nccl_monitoring",),
        bears_on=("observable",),
        per="node",
        min_nodes=2,
        unit="s",
        rule="at_most",
        expect=Fixed(0.5),
        guide=guides.MONITOR,
    ),
)

GATES: tuple[Gate, ...] = (
    *_PROGRAM,
    *_VALUES,
    *_STALLS,
    *_TRANSPORT,
    *_SPEED,
    *_MONITOR,
    *pair_gates.GATES,
    *variant_gates.GATES,
)
