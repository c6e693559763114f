"""The trainings on the page, side by side."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bringup.compare import entries, sidebyside
from bringup.compare.entries import Entry
from bringup.errors import NotComparable, RecordError
from bringup.judge import Judged
from bringup.plan.phases import PHASES
from bringup.report import training as training_report
from bringup.report.figures import training as training_figures
from bringup.report.page.pictures import Picture, data_uri


def entry_of(judged: Judged) -> Entry | None:
    """None where there is no training, or its evidence does not hold."""
    try:
        return entries.entry(judged)
    except (NotComparable, RecordError):
        return None


@dataclass(frozen=True)
class Training:
    """What `bringup compare` says; no rows, and why, where it refuses."""

    header: Sequence[str]
    rows: list[list[str]]
    note: str
    pictures: list[Picture]
    report: training_report.Report  # a column per run, or one for all of them where they say the same


def side_by_side(judged: Sequence[Judged], varied: Sequence[str] = ()) -> Training:
    report = training_report.report(judged)
    trained = [run for run in judged if PHASES[run.run.phase].is_training]
    known = [entry for run in trained if (entry := entry_of(run)) is not None]
    names = {entry.folder for entry in known}
    left_out = [run.run.name for run in trained if run.folder not in names]
    notes = (
        [f"not here, because it did not end or its evidence does not hold: {', '.join(left_out)}"] if left_out else []
    )
    if not known:
        return Training([], [], "; ".join(notes), [], report)
    try:
        entries.refuse_repeated(known)
        comparison = sidebyside.compare(known, varied)
    except NotComparable as error:
        return Training([], [], "; ".join([str(error), *notes]), [], report)
    return Training(comparison.header, comparison.cells, "; ".join([comparison.note, *notes]), _pictures(known), report)


def _pictures(known: Sequence[Entry]) -> list[Picture]:
    with tempfile.TemporaryDirectory(prefix="bringup-report-") as folder:
        return [
            Picture(f"Training runs: {path.stem}", data_uri(path))
            for path in training_figures.draw(known, Path(folder))
        ]
