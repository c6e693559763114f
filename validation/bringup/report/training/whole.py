"""The whole report of some trainings, which the page and report.md show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bringup.compare import sidebyside
from bringup.judge import Judged
from bringup.report.render import render
from bringup.report.training.chapters import Chapter, chapters
from bringup.report.training.trained import trained


@dataclass(frozen=True)
class Report:
    """Names of the runs, which are those of the values of each line. No chapter: no training came to its end."""

    names: list[str]
    chapters: list[Chapter]


def report(judged: Sequence[Judged]) -> Report:
    """Of the trainings among these runs; the facts of the cluster are those of the discovery among them."""
    runs = trained(judged)
    names = sidebyside.short_names([run.judged.folder.name for run in runs])
    return Report(names, chapters(runs) if runs else [])


def markdown(judged: Sequence[Judged]) -> str:
    """The same for report.md, of one training or of a whole playbook. Empty where no training came to its end."""
    written = report(judged)
    source = "this run; of the cluster, see the report of discovery" if len(judged) == 1 else "these runs"
    return render("training.md.j2", report=written, source=source) if written.chapters else ""
