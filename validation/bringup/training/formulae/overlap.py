"""What part of a step is communication, from what torch's profiler recorded in training/src/recipe/communication.py.

total     time in which a collective of this rank was under way. It begins when the rank is ready and ends when its data
          are there, so it includes the wait for slower ranks. The rank with the shortest time waits least
exposed   the part of it in which this rank computed nothing: what the step would be shorter without it

On a GPU both are read from kernels: those of NCCL, and all others (as Meta's Holistic Trace Analysis defines the
overlap). On a CPU they are the ranges that gloo and torch's operators leave. Fetching rows is not among it.
"""

import itertools
import re
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from bringup.training.formulae import traffic
from bringup.training.formulae.models import job_of
from bringup.training.records import CollectiveTime, Communication, ModelShape, RunArgs

Interval = tuple[float, float]  # begin and end, microseconds
Event = tuple[str, float, float]  # name of a kernel, an operator or a range; begin and end, microseconds
OTHER = "other"  # a collective of another kind: broadcast, barrier, send and receive
KINDS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
_COLLECTIVE = re.compile(r"gloo:|nccl\w*Kernel")
_COMPUTED_ON_CPU = ("aten::", "Torch-Compiled Region")


@dataclass(frozen=True)
class Profiled:
    """What was profiled on one rank, in seconds per step."""

    step_s: float
    total_s: float
    exposed_s: float
    seconds: dict[str, float]  # by kind of collective
    calls: dict[str, float]


def kind_of(name: str) -> str | None:
    """Return all_reduce, all_gather, reduce_scatter or other; None: not a collective. name: of a kernel or a range."""
    return _kind(name) if _COLLECTIVE.match(name) else None


def _kind(name: str) -> str:
    flat = name.lower().replace("_", "")
    return next((kind for stem, kind in KINDS.items() if stem in flat), OTHER)


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Merge intervals: in order, without overlaps."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def length(intervals: Iterable[Interval]) -> float:
    """Return the time in which at least one of them lasts."""
    return sum(end - begin for begin, end in merged(intervals))


def exposed(communication: list[Interval], compute: list[Interval]) -> float:
    """Return the time in which there is communication and no computation."""
    alone = length([*communication, *compute]) - length(compute)
    return min(max(alone, 0.0), length(communication))  # differences of long times are rounded


def read(events: Iterable[Event], steps: int, seconds: float, cuda: bool) -> Profiled:
    """Read events of `steps` steps in `seconds`. Of a GPU its kernels; else what torch recorded of the host."""
    by_kind: dict[str, list[Interval]] = {}
    busy: list[Interval] = []
    events = sorted(events, key=lambda event: event[1:])
    for (name, begin, end), kind in zip(events, _as_called([name for name, _, _ in events]), strict=True):
        if kind is not None:
            by_kind.setdefault(kind, []).append((begin, end))
        elif cuda or name.startswith(_COMPUTED_ON_CPU):
            busy.append((begin, end))
    communication = list(itertools.chain.from_iterable(by_kind.values()))
    per_step = 1e-6 / steps
    return Profiled(
        step_s=seconds / steps,
        total_s=length(communication) * per_step,
        exposed_s=exposed(communication, busy) * per_step,
        seconds={kind: length(intervals) * per_step for kind, intervals in by_kind.items()},
        calls={kind: len(intervals) / steps for kind, intervals in by_kind.items()},
    )


def _as_called(names: list[str]) -> list[str | None]:
    """Return the kind of each event that is a collective. gloo makes a reduce_scatter of an all_reduce, and names it
    so: there the calls, which come in the same order, say what it is."""
    kinds = [kind_of(name) for name in names]
    alike = ("all_reduce", "reduce_scatter")
    ran = [index for index, kind in enumerate(kinds) if kind in alike and names[index].startswith("gloo:")]
    called = [kind for kind in (_kind(name) for name in names if name.startswith("c10d::")) if kind in alike]
    if len(called) == len(ran):  # DDP calls without leaving a range
        for index, kind in zip(ran, called, strict=True):
            kinds[index] = kind
    return kinds


def of_all(
    ranks: list[Profiled], steps: int, resolved: RunArgs, shape: ModelShape
) -> tuple[Communication | None, str | None]:
    """Sum up all ranks. ranks: index = rank. steps: that were profiled."""
    if not all(rank.total_s > 0 for rank in ranks):
        silent = [number for number, rank in enumerate(ranks) if rank.total_s <= 0]
        return None, f"torch.profiler saw no collective on {len(silent)} of {len(ranks)} ranks, first rank {silent[0]}"
    step_s = statistics.median(rank.step_s for rank in ranks)
    collectives, reason = _collectives(ranks, resolved, shape)
    return Communication(
        steps=steps,
        step_s=step_s,
        total_s=[rank.total_s for rank in ranks],
        exposed_s=[rank.exposed_s for rank in ranks],
        collectives=collectives,
        collectives_reason=reason,
    ), None


def _collectives(ranks: list[Profiled], args: RunArgs, shape: ModelShape) -> tuple[list[CollectiveTime], str | None]:
    """Bytes by formula / time of the rank that waited least for the others."""
    times = []
    for collective in traffic.collectives(shape, job_of(args)):
        kind = collective.operation
        timed = [rank for rank in ranks if rank.seconds.get(kind)]
        if not timed:
            return [], f"torch.profiler saw no {kind}, which the strategy has"
        quickest = min(timed, key=lambda rank: rank.seconds[kind])
        seconds = quickest.seconds[kind]
        times.append(
            CollectiveTime(
                operation=kind,
                over=collective.over,
                ranks=collective.ranks,
                calls=quickest.calls[kind],
                calls_predicted=collective.calls,
                message_bytes=collective.message,
                sent_bytes=collective.sent,
                seconds=seconds,
                busbw_gb_per_s=collective.sent / seconds / 1e9,
            )
        )
    return times, None


def fields(seen: Communication | None, reason: str | None) -> dict[str, Any]:
    """Return fields of records.TrainMetrics; reason: why null. The share is exposed / step, the median of ranks."""
    share = None if seen is None else min(1.0, statistics.median(seen.exposed_s) / seen.step_s)
    return {"communication": seen, "communication_share": share, "communication_reason": reason}
