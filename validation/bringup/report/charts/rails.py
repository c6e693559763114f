"""Bandwidth against what is needed: a rail for each operation and scale, with a tick at its floor."""

from __future__ import annotations

import math
from collections.abc import Iterable

from bringup.plan import catalogue
from bringup.records import Outcome, Verdict
from bringup.records.grouped import grouped
from bringup.report.charts.drawing import Drawing, Rail, has_place, rails, short

MOST = 14  # rails: the worst ones, beside their floors
_JUDGED = (Outcome.PASS, Outcome.FAIL, Outcome.WARN, Outcome.NO_LIMIT)
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
    return rails("Bandwidth against what is needed, GB/s (log scale)", [_rail(verdict) for verdict in shown], left)


def _is_bandwidth(verdict: Verdict) -> bool:
    """Say whether it is the bandwidth of a scale or of the slowest pair: between GPUs or nodes, not of storage."""
    gate = catalogue.GATES.get(verdict.gate)
    of_fabric = verdict.gate.startswith("nccl.") and gate is not None and gate.per not in ("node", "rank")
    value = verdict.value
    return (
        of_fabric
        and verdict.unit == "GB/s"
        and verdict.outcome in _JUDGED
        and isinstance(value, int | float)
        and value > 0
        and has_place(value)
    )


def _floor(verdict: Verdict) -> float | None:
    is_floor = verdict.rule == "at_least" and isinstance(verdict.limit, int | float) and verdict.limit > 0
    return float(verdict.limit) if is_floor and isinstance(verdict.limit, int | float) else None


def _over_its_floor(verdict: Verdict) -> float:
    """value / floor; infinite without one."""
    floor = _floor(verdict)
    return math.inf if floor is None or not isinstance(verdict.value, int | float) else float(verdict.value) / floor


def _rail(verdict: Verdict) -> Rail:
    value = float(verdict.value) if isinstance(verdict.value, int | float) else 0.0
    floor = _floor(verdict)
    name = _NAMES.get(verdict.gate) or verdict.gate.removeprefix("nccl.").removesuffix(".busbw").replace(".", " ")
    where = "" if verdict.subject == "job" else f", {verdict.subject.replace('-', ' ')}"
    needed = "no limit" if floor is None else f"of ≥ {short(floor)}"
    return Rail(f"{name}{where}", value, floor, f"{short(value)} {needed}", f"fill-{verdict.outcome}")
