"""The figures of one run, beside its report.md. They judge nothing."""

from __future__ import annotations

from collections.abc import Sequence

from bringup.judge import Judged
from bringup.report.charts import bandwidth, pairs, sampled, sheet


def draw(judged: Judged) -> list[tuple[str, str]]:
    """(title, file name) of those drawn into the run's folder; none where there is nothing to draw."""
    known = {
        ("Bus bandwidth over size", "curves.svg"): bandwidth.draw(judged.observations, judged.profile),
        ("Bandwidth between nodes", "pairs.svg"): pairs.draw(
            judged.observations, judged.run.nodes, judged.verdicts.verdicts
        ),
        ("What the monitor sampled", "timelines.svg"): sampled.draw(judged),
    }
    for (title, name), drawings in known.items():
        if drawings:
            sheet.save(judged.folder / name, title, drawings)
    return [named for named, drawings in known.items() if drawings]


def markdown(drawn: Sequence[tuple[str, str]]) -> str:
    """The end of report.md."""
    return "".join(f"\n## {title}\n\n![{title}]({name})\n" for title, name in drawn)
