"""The figures of a run, each from the evidence that it needs. What draws one is loaded where there is some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bringup.kernel.judge import Judged
from bringup.kernel.records import Verdict
from bringup.readers import curve
from bringup.registry import called

if TYPE_CHECKING:
    from bringup.report.charts.drawing import Drawing

NAMES = {
    "Bus bandwidth over size": "curves.svg",
    "Bandwidth between nodes": "pairs.svg",
    "What the monitor sampled": "timelines.svg",
}


def _drawn(chart: str, *given: object) -> list[Drawing]:
    drawn: list[Drawing] = called(f"bringup.report.charts.{chart}:draw")(*given)
    return drawn


def over_size(run: Judged) -> list[Drawing]:
    return _drawn("bandwidth", run.measured, run.profile) if curve.curves(run.measured) else []


def between_nodes(run: Judged) -> list[Drawing]:
    is_measured = any(seen.quantity.startswith("pair.") or "--" in seen.subject for seen in run.measured)
    return _drawn("pairs", run.measured, run.run.nodes, run.verdicts.verdicts) if is_measured else []


def sampled(run: Judged) -> list[Drawing]:
    return _drawn("sampled", run) if "raw/monitor.csv" in run.files.raw.files else []


def against_floors(verdicts: Sequence[Verdict]) -> Drawing | None:
    is_measured = any(verdict.gate.startswith("nccl.") for verdict in verdicts)
    drawn: Drawing | None = called("bringup.report.charts.bandwidth:against_floors")(verdicts) if is_measured else None
    return drawn


def draw(judged: Judged) -> list[tuple[str, str]]:
    """Draw what there is to draw into the run's folder; it judges nothing. Return (title, file name) of each figure."""
    drawn = over_size(judged), between_nodes(judged), sampled(judged)
    known = [(title, name, drawings) for (title, name), drawings in zip(NAMES.items(), drawn, strict=True) if drawings]
    for title, name, drawings in known:
        called("bringup.report.charts.sheet:save")(judged.folder / name, title, drawings)
    return [(title, name) for title, name, _ in known]
