"""What one sends: report.md of a run, and the phases of a playbook in one document. Both begin with what was asked and
the answer, then what is wrong, then the numbers."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from bringup import registry
from bringup.kernel import results
from bringup.kernel.answers import answers, stand_ins_of
from bringup.kernel.characters import many
from bringup.kernel.errors import BringupError
from bringup.kernel.judge import Judged
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Mark, Observations, Verdicts
from bringup.kernel.run_folder import RunFolder
from bringup.report import collectives, drain, figures, fleet, layers, next_steps, run_folders, system, trainings
from bringup.report.collection import Collection
from bringup.report.links import Links, nowhere
from bringup.report.render import render
from bringup.report.view import View

AT_THE_HEAD = ("profile", "site", "bringup commit", "opened")  # of the record of the first run
READ_BESIDE = ("discovery", "nccl_scaling")  # phases whose facts and curves a training is read beside


class Section(NamedTuple):
    """One run as a part of the document."""

    view: View
    answer: str
    pictures: Sequence[tuple[str, str]]  # title, address
    measured: list[tuple[str, str, str, str]]
    inventory: list[tuple[str, str]]  # what the nodes are, as discovery saw them
    has_table: bool  # of the collectives

    @property
    def asks(self) -> str:
        return PHASES[self.view.judged.run.phase].asks


def run(judged: Judged, pictures: Sequence[tuple[str, str]] = ()) -> str:
    """Write report.md of one run. pictures: titles and addresses of figures."""
    of_run = _section(judged, pictures)
    cards = next_steps.cards([judged], nowhere)
    unseen = stand_ins_of(claim for each in answers([judged]) for claim in each.claims if claim.mark is Mark.NOT_PROVEN)
    others = of_run.view.not_passed({finding.gate for card in cards for finding in card.findings})
    parts = {"section": of_run, "view": of_run.view, "stand_ins": unseen, "cards": cards, "not_passed": others}
    return _rendered("report.md.j2", **parts, chapters=trainings.report([judged], beside(judged)).chapters)


def playbook(gathered: Collection, links: Links = nowhere) -> str:
    """Write all phases in one document. links: from where it will lie to the folders of the runs."""
    judged = gathered.judged
    widest = next((each for each in judged if each.run.phase == "nccl_scaling"), None)
    sections = [_section(each, _linked(each, links), each is widest or widest is None) for each in judged]
    before_training = _in_short([each for each in sections if not PHASES[each.view.judged.run.phase].is_training])
    nodes = fleet.nodes(judged)
    reports = [each.folder / results.REPORT for each in judged]
    excluded = {(entry.gate, entry.reason) for each in judged for entry in each.verdicts.not_applicable}
    reasons = {reason for _, reason in excluded}
    written = _rendered(
        "playbook.md.j2",
        gathered=gathered,
        headline=gathered.headline,
        counted=next_steps.counted(judged),
        nodes=[node.name for node in nodes],
        record=[row for each in sections[:1] for row in each.view.record if row[0] in AT_THE_HEAD],
        cards=next_steps.arranged(next_steps.cards(judged, nowhere)),
        keep_away=drain.keep_away(judged, nodes),
        sections=before_training,
        steps=[
            (each.view, gathered.seconds.get(each.view.judged.folder), links(report) if report.is_file() else None)
            for each, report in zip(sections, reports, strict=True)
        ],
        titles={phase.stem: phase.title for phase in PHASES.values()},
        layers=layers,
        waterfalls=layers.waterfalls(judged),
        trainings=trainings.report(judged),
        left_to_discovery=["Hardware"] if any(each.inventory for each in before_training) else [],
        excluded=[f"{many(len(excluded), 'check')}, for {many(len(reasons), 'reason')} that the reports name"][
            : len(reasons)
        ],
    )
    headings = re.findall(r"^## (.+)$", written, re.MULTILINE)
    anchors = [re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in headings]  # as GitHub makes them
    contents = "\n".join(f"- [{title}](#{anchor})" for title, anchor in zip(headings, anchors, strict=True))
    return written.replace("\n## ", f"\n{contents}\n\n## ", 1)


def _rendered(template: str, **parts: Any) -> str:
    """With one empty line between two blocks."""
    return re.sub(r"\n{3,}", "\n\n", render(template, collectives=collectives, **parts)).strip() + "\n"


def _section(judged: Judged, pictures: Sequence[tuple[str, str]], has_table: bool = True) -> Section:
    view = View(judged)
    inventory = system.table(judged) if judged.run.phase == "discovery" else []
    return Section(view, next_steps.counted([judged]), pictures, list(view.measured.values()), inventory, has_table)


def _in_short(sections: Sequence[Section]) -> list[Section]:
    """With the numbers that a profile declares, each gate once; without discovery's: its table of nodes says more."""
    shown: set[str] = set()
    shortened = []
    for section in sections:
        known = {} if section.inventory else section.view.measured
        gates = [gate for gate in known if gate not in shown and (gate in GATES and GATES[gate].expect == "profile")]
        shown.update(gates)
        shortened.append(section._replace(measured=[known[gate] for gate in gates]))
    return shortened


def _linked(judged: Judged, links: Links) -> list[tuple[str, str]]:
    """Return the figures that lie in its folder."""
    there = [(title, judged.folder / name) for title, name in figures.NAMES.items() if (judged.folder / name).is_file()]
    return [(title, address) for title, path in there if (address := links(path)) is not None]


def beside(judged: Judged) -> list[Judged]:
    """Return what was judged in the same playbook and a training is read beside: discovery, collectives, DDP on as many
    nodes. Empty for a copy that lies in no tree."""
    phase = PHASES[judged.run.phase]
    tree = run_folders.tree_of(judged.folder, Path(phase.results))
    if not phase.is_training or tree is None:
        return []
    others = (other for other in PHASES.values() if other.strategy == "ddp" and other is not phase)
    alike = [other.stem for other in others if other.min_nodes == phase.min_nodes and not phase.one_gpu]
    name = judged.run.name.removeprefix(f"{phase.stem}-")
    folders = [results.folder_of(PHASES[stem], name, tree) for stem in (*READ_BESIDE, *alike)]
    return [each for folder in folders if (each := _judged_before(folder)) is not None]


def _judged_before(folder: Path) -> Judged | None:
    """Load a run as it was judged when it ended. None: it is not there, or cannot be read."""
    files = RunFolder(folder)
    try:
        run, profile = files.run, files.profile
        seen = files.record(results.OBSERVATIONS, Observations)
        verdicts = files.record(results.VERDICTS, Verdicts)
    except (BringupError, OSError):
        return None
    records = registry.called(registry.TRAINING)(files) if PHASES[run.phase].is_training else None
    trained = records if records is not None and records.are_whole else None
    return Judged(files, run, profile, seen.observations, seen.problems, verdicts, trained)
