"""Parts of the page: a run, with what failed, what was proven and its figures; and the trainings side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bringup.compare import entries, recommend, sidebyside
from bringup.errors import NotComparable
from bringup.judge import Judged
from bringup.plan.phases import PHASES
from bringup.report import training as training_report
from bringup.report.charts import bandwidth, pairs, sampled
from bringup.report.charts import training as charts_of_training
from bringup.report.charts.drawing import Drawing
from bringup.report.links import Links, to_evidence
from bringup.report.training.conclusions import entry_of
from bringup.report.view import View

MAX_BAD = 200  # verdicts of one run in its table; the run's own report.md has them all


@dataclass(frozen=True)
class Section:
    """One run."""

    view: View
    anchor: str
    seconds: float | None  # that a playbook's phase took
    curves: list[Drawing]  # bandwidth over size
    between: list[Drawing]  # bandwidth between nodes
    drawings: list[Drawing]  # all others
    links: Links

    @property
    def link(self) -> str | None:
        """Return the address of its folder."""
        return self.links(self.view.folder) if self.view.folder.is_dir() else None

    def address(self, evidence: str) -> str | None:
        return to_evidence(self.links, self.view.folder, evidence)


def section(judged: Judged, anchor: str, seconds: float | None, links: Links) -> Section:
    view = View(judged.run, judged.verdicts, judged.folder, judged.observations)
    curves = bandwidth.draw(judged.observations, judged.profile)
    between = pairs.draw(judged.observations, judged.run.nodes, judged.verdicts.verdicts)
    entry = entry_of(judged)
    drawings = sampled.draw(judged) + ([] if entry is None else charts_of_training.of_ranks(entry))
    return Section(view, anchor, seconds, curves, between, drawings, links)


@dataclass(frozen=True)
class Training:
    """What `bringup compare` says; no rows, and why, where it refuses."""

    header: Sequence[str]
    rows: list[list[str]]
    note: str
    deciding: list[Drawing]
    advice: recommend.Recommended | None
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
        return Training([], [], "; ".join(notes), [], None, report)
    try:
        entries.refuse_repeated(known)
        comparison = sidebyside.compare(known, varied)
    except NotComparable as error:
        return Training([], [], "; ".join([str(error), *notes]), [], None, report)
    return Training(
        comparison.header,
        comparison.cells,
        "; ".join([comparison.note, *notes]),
        charts_of_training.deciding(known),
        recommend.recommend(comparison),
        report,
    )
