"""Bandwidth against what is needed: a rail for each operation and scale, with a tick at its floor."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bringup.evidence.parsed import is_number
from bringup.plan import catalogue
from bringup.records import Outcome, Verdict
from bringup.records.grouped import grouped
from bringup.report.charts.drawing import Bar, Drawing, bars, has_place, short

MOST = 14  # rails: the worst ones, beside their floors
_NAMES = {"nccl.pair.slowest": "slowest pair"}


def draw(verdicts: Iterable[Verdict]) -> Drawing | None:
    """Draw bandwidths between GPUs or nodes; None where none was measured. Those that failed come first, then the order
    of the run."""
    measured = grouped(((verdict.gate, verdict.subject), verdict) for verdict in verdicts if _is_bandwidth(verdict))
    known = [min(several, key=_over_its_floor) for several in measured.values()]  # of one that two steps measured
    if not known:
        return None
    worst = sorted(known, key=_over_its_floor)[:MOST]
    kept = [verdict for verdict in known if any(verdict is other for other in worst)]
    shown = sorted(kept, key=lambda verdict: verdict.outcome is not Outcome.FAIL)
    left = f"{len(known) - len(shown)} more, which are further above their floors" if len(known) > len(shown) else ""
    title = "Bandwidth against what is needed, GB/s (log scale)"
    return bars(title, [_bar(verdict) for verdict in shown], left, width=560.0, is_log=True)


def _is_bandwidth(verdict: Verdict) -> bool:
    """Say whether it is the bandwidth of a scale or of the slowest pair: between GPUs or nodes, not of storage."""
    gate = catalogue.GATES.get(verdict.gate)
    of_fabric = verdict.gate.startswith("nccl.") and gate is not None and gate.per not in ("node", "rank")
    is_judged = verdict.unit == "GB/s" and verdict.outcome is not Outcome.INCOMPLETE
    return of_fabric and is_judged and _speed(verdict) > 0 and has_place(_speed(verdict))


def _speed(verdict: Verdict) -> float:
    return float(verdict.value) if is_number(verdict.value) else 0.0


def _floor(verdict: Verdict) -> float | None:
    limit = verdict.limit
    return float(limit) if verdict.rule == "at_least" and is_number(limit) and limit > 0 else None


def _over_its_floor(verdict: Verdict) -> float:
    """value / floor; infinite without one."""
    floor = _floor(verdict)
    return math.inf if floor is None else _speed(verdict) / floor


def _bar(verdict: Verdict) -> Bar:
    value, floor = _speed(verdict), _floor(verdict)
    name = _NAMES.get(verdict.gate) or verdict.gate.removeprefix("nccl.").removesuffix(".busbw").replace(".", " ")
    where = "" if verdict.subject == "job" else f", {verdict.subject.replace('-', ' ')}"
    needed = "no limit" if floor is None else f"of ≥ {short(floor)}"
    return Bar(f"{name}{where}", value, f"{short(value)} {needed}", f"fill-{verdict.outcome}", floor)
