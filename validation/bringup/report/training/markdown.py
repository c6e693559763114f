"""The training report as it stands in report.md, of one training or of a whole playbook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bringup.judge import Judged
from bringup.report import text
from bringup.report.training.chapters import Chapter
from bringup.report.training.whole import report


def markdown(judged: Sequence[Judged]) -> str:
    """Empty where none of the runs is a training that came to its end."""
    chapters = report(judged)
    if not chapters.chapters:
        return ""
    source = "this run; of the cluster, see the report of discovery" if len(judged) == 1 else "these runs"
    lines = ["", "# Training report", "", f"From the records of {source}."]
    for chapter in chapters.chapters:
        lines += ["", f"## {chapter.title}", "", *_lines(chapter, chapters.names)]
    return "\n".join([*lines, ""])


def _lines(chapter: Chapter, names: Sequence[str]) -> Iterator[str]:
    """What is the same in all runs in one table, what differs in one with a column for each run."""
    alike = [(name, values[0]) for name, values in chapter.lines if len(set(values)) == 1]
    differing = [(name, *values) for name, values in chapter.lines if len(set(values)) > 1]
    if alike:
        yield from text.table(("what", "value" if len(names) == 1 else "in all runs"), alike)
    if alike and differing:
        yield ""
    if differing:
        yield from text.table(("what", *map(text.escaped, names)), differing)
    yield from (f"- {text.escaped(sentence)}" for sentence in chapter.sentences)
