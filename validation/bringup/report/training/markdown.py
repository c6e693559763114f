"""The report of one training as it stands in its report.md."""

from __future__ import annotations

from bringup.judge import Judged
from bringup.report import text
from bringup.report.training.chapters import chapters
from bringup.report.training.trained import trained


def markdown(judged: Judged) -> str:
    """Empty for a run that is no training, or did not come to its end."""
    runs = trained([judged])
    if not runs:
        return ""
    lines = ["", "# Training report", "", "From the records of this run; of the cluster, see the report of discovery."]
    for chapter in chapters(runs):
        lines += ["", f"## {chapter.title}", ""]
        if chapter.lines:
            lines += text.table(("what", "value"), ((name, values[0]) for name, values in chapter.lines))
        lines += [f"- {text.escaped(sentence)}" for sentence in chapter.sentences]
    return "\n".join([*lines, ""])
