"""The figures of a run, each from the evidence that it needs. What draws is loaded where there is some."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from bringup.kernel.judge import Judged
from bringup.kernel.records import Verdict
from bringup.readers import curve

if TYPE_CHECKING:
    from bringup.report.charts.drawing import Drawing

NAMES = {
    "Bus bandwidth over size": "curves.svg",
    "Bandwidth between nodes": "pairs.svg",
    "What the monitor sampled": "timelines.svg",
}
_SAMPLES = "raw/monitor.csv"


def over_size(judged: Judged) -> list[Drawing]:
    """Draw bus bandwidth over size."""
    if not curve.curves(judged.observations):
        return []
    from bringup.report.charts import bandwidth

    return bandwidth.draw(judged.observations, judged.profile)


def between_nodes(judged: Judged) -> list[Drawing]:
    if not any(seen.quantity.startswith("pair.") or "--" in seen.subject for seen in judged.observations):
        return []
    from bringup.report.charts import pairs

    return pairs.draw(judged.observations, judged.run.nodes, judged.verdicts.verdicts)


def sampled(judged: Judged) -> list[Drawing]:
    """Draw what the monitor sampled."""
    if not (judged.folder / _SAMPLES).is_file():
        return []
    from bringup.report.charts import sampled

    return sampled.draw(judged)


def against_floors(verdicts: Sequence[Verdict]) -> Drawing | None:
    if not any(verdict.gate.startswith("nccl.") for verdict in verdicts):
        return None
    from bringup.report.charts import bandwidth

    return bandwidth.against_floors(verdicts)


def draw(judged: Judged) -> list[tuple[str, str]]:
    """Draw figures into the run's folder; they judge nothing. Return (title, file name) of each; none where there is
    nothing to draw."""
    drawn = over_size(judged), between_nodes(judged), sampled(judged)
    known = [(title, name, drawings) for (title, name), drawings in zip(NAMES.items(), drawn, strict=True) if drawings]
    for title, name, drawings in known:
        from bringup.report.charts import sheet

        sheet.save(judged.folder / name, title, drawings)
    return [(title, name) for title, name, _ in known]
