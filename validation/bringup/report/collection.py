"""The runs that one report is about: a playbook's, or those that were named, each judged again from its evidence."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from bringup import results
from bringup.answers import answers
from bringup.answers.drilled import Drilled
from bringup.derive.blame import named
from bringup.errors import BringupError
from bringup.evidence.names import listed
from bringup.judge import Judged, judge_folder
from bringup.plan.phases import PHASES
from bringup.plan.profile import Profile
from bringup.records import (
    Answer,
    Decision,
    DrillReport,
    Headline,
    Mark,
    Outcome,
    Playbook,
    Verdict,
    read_record,
    worst,
)
from bringup.report.headline import headline
from bringup.results import Absent


@dataclass(frozen=True)
class Collection:
    judged: list[Judged]
    absent: list[Absent]
    left_out: list[str]  # phases that could not run on the requested nodes, with the reason
    playbooks: list[Path]
    seconds: dict[Path, float]  # what a playbook's phases took
    unhealthy_nodes: list[str] = field(default_factory=list)  # left out by later phases
    set_aside: list[str] = field(default_factory=list)  # nodes that no phase took, and why
    drills: list[Drilled] = field(default_factory=list)
    varied: list[str] = field(default_factory=list)  # arguments in which the runs of a sweep differ

    @property
    def verdicts(self) -> list[Verdict]:
        return [verdict for judged in self.judged for verdict in judged.verdicts.verdicts]

    @cached_property
    def answers(self) -> list[Answer]:
        """Return the answers to the six questions."""
        return answers(self.judged, [absent.phase for absent in self.absent], self.drills, self.unhealthy_nodes)

    @cached_property
    def headline(self) -> Headline:
        nodes = dict.fromkeys(node for judged in self.judged for node in judged.run.nodes)
        ran = [judged.run.phase for judged in self.judged]
        made = headline(self.outcome, self.answers, self.judged, ran, self.set_aside)
        if made.decision is not Decision.ACCEPT or not (partly := self._not_in_all_phases(list(nodes))):
            return made
        because = f"not all phases ran on {listed(partly)}"
        return made.model_copy(
            update={"mark": Mark.PARTLY, "says": "nothing failed", "decision": Decision.OPEN, "because": because}
        )

    def _not_in_all_phases(self, nodes: Sequence[str]) -> list[str]:
        """Nodes on which a phase that takes all nodes did not run."""
        took_part: dict[str, set[str]] = {}
        for judged in self.judged:
            if PHASES[judged.run.phase].max_nodes is None:
                took_part.setdefault(judged.run.phase, set()).update(judged.run.nodes)
        return [node for node in nodes if any(node not in of_phase for of_phase in took_part.values())]

    @property
    def outcome(self) -> Outcome:
        """Return the worst outcome of everything that was planned: what is absent is incomplete."""
        return worst([*(judged.verdicts.outcome for judged in self.judged), *(Outcome.INCOMPLETE for _ in self.absent)])


def of_playbook(playbook: Playbook, judged: Sequence[Judged], folder: Path) -> Collection:
    """Collect what a playbook has just judged."""
    seconds = {step.phase: step.seconds for step in playbook.steps}
    return Collection(
        list(judged),
        [Absent(step.phase, step.why_not_run or "did not run") for step in playbook.steps if step.folder is None],
        [*playbook.left_out, *map(results.unhealthy_node, playbook.unhealthy_nodes)],
        [folder],
        {each.folder: seconds[each.run.phase] for each in judged if each.run.phase in seconds},
        [entry.node for entry in playbook.unhealthy_nodes],
        playbook.set_aside,
    )


def _drilled(folder: Path) -> Drilled:
    """Load the record of drills, and their runs: each in the folder of its drill, wherever the whole was moved to."""
    report, runs = read_record(folder / results.DRILLS, DrillReport), dict[str, Judged]()
    for result in report.results:
        if result.performed and result.evidence is not None:
            with contextlib.suppress(BringupError, OSError):  # then nothing shows what it found
                runs[result.drill] = judge_folder(folder / result.drill / Path(result.evidence).name)
    return Drilled(report, runs)


def gather(folders: Sequence[Path], profile: Profile | None = None) -> Collection:
    """Judge the runs in these folders (of runs, playbooks, drills), in the order of the phases. A run that cannot be
    judged is absent, and says why; raises RunError, FileError or RecordError only when nothing was left to judge."""
    of_drills = [folder for folder in folders if results.holds(folder, results.DRILLS)]
    drills = [_drilled(folder) for folder in of_drills]
    chosen = results.find([folder for folder in folders if folder not in of_drills])
    judged: list[Judged] = []
    unread: list[tuple[Path, BringupError | OSError]] = []
    for folder in chosen.once:
        try:
            run = judge_folder(folder, profile)
            # a copy of it counts once
            if not any((run.run, run.verdicts) == (other.run, other.verdicts) for other in judged):
                judged.append(run)
        except (BringupError, OSError) as error:
            unread.append((folder, error))
    if unread and not judged and not chosen.playbooks and not drills:
        raise unread[0][1]
    names = {folder: step.phase for folder, step in chosen.steps.items()}
    absent = [*chosen.absent, *(Absent(names.get(folder, folder.name), str(error)) for folder, error in unread)]
    seconds = {folder: step.seconds for folder, step in chosen.steps.items()}
    order = list(PHASES)
    gpus = {uuid: name for run in judged for uuid, name in run.names.items()}  # as discovery named them
    judged = [replace(run, verdicts=named(run.verdicts, gpus)) for run in judged]
    judged.sort(key=lambda run: (order.index(run.run.phase), run.run.opened_at, run.run.name))
    nodes = (chosen.unhealthy_nodes, chosen.set_aside)
    return Collection(judged, absent, chosen.left_out, chosen.playbooks, seconds, *nodes, drills, chosen.varied)
