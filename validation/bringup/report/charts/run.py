"""The figures of one run, beside its report.md. They judge nothing."""

from __future__ import annotations

from bringup.judge import Judged
from bringup.report.charts import bandwidth, pairs, sampled, sheet

NAMES = {
    "Bus bandwidth over size": "curves.svg",
    "Bandwidth between nodes": "pairs.svg",
    "What the monitor sampled": "timelines.svg",
}


def draw(judged: Judged) -> list[tuple[str, str]]:
    """Draw figures into the run's folder. Return (title, file name) of each; none where there is nothing to draw."""
    drawn = (
        bandwidth.draw(judged.observations, judged.profile),
        pairs.draw(judged.observations, judged.run.nodes, judged.verdicts.verdicts),
        sampled.draw(judged),
    )
    known = [(title, name, drawings) for (title, name), drawings in zip(NAMES.items(), drawn, strict=True) if drawings]
    for title, name, drawings in known:
        sheet.save(judged.folder / name, title, drawings)
    return [(title, name) for title, name, _ in known]
