"""The runs that one report is about: a playbook's, or those that were named, each judged again from its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from bringup import results as runs
from bringup.answers import answers
from bringup.errors import ProfileError, RecordError, RunError
from bringup.judge import Judged, judge_folder
from bringup.plan.phases import PHASES
from bringup.plan.profile import Profile
from bringup.records import Answer, DrillReport, Outcome, Playbook, Verdict, read_record, worst
from bringup.results import REPOSITORY

PLAYBOOK = "playbook.json"
DRILLS = "drill.json"


@dataclass(frozen=True)
class Absent:
    """A phase that was planned, and of which there is nothing to judge."""

    phase: str
    why: str


@dataclass(frozen=True)
class Collection:
    judged: list[Judged]
    absent: list[Absent]
    left_out: list[str]  # phases that the nodes could not be asked for, with the reason
    playbooks: list[Path]
    seconds: dict[Path, float]  # what a playbook's phases took
    drills: list[DrillReport] = field(default_factory=list)

    @property
    def verdicts(self) -> list[Verdict]:
        return [verdict for one in self.judged for verdict in one.verdicts.verdicts]

    @cached_property
    def answers(self) -> list[Answer]:
        """Of the six questions."""
        return answers(self.judged, [gone.phase for gone in self.absent], self.drills)

    @property
    def outcome(self) -> Outcome:
        """Of everything that was planned: what is absent is incomplete."""
        return worst([*(one.verdicts.outcome for one in self.judged), *(Outcome.INCOMPLETE for _ in self.absent)])


def gather(folders: Sequence[Path], profile: Profile | None = None) -> Collection:
    """Of run folders and playbook folders, in the order of the phases. Raises RunError, ProfileError or RecordError for a named
    folder that is neither; a playbook's run that is not here is absent, not an error."""
    judged: dict[Path, Judged] = {}
    absent: list[Absent] = []
    left_out: list[str] = []
    seconds: dict[Path, float] = {}
    playbooks = [folder for folder in folders if (folder / PLAYBOOK).is_file()]
    for folder in playbooks:
        playbook = read_record(folder / PLAYBOOK, Playbook)
        left_out += playbook.left_out
        reached = {step.phase for step in playbook.steps}
        absent += [
            Absent(stem, "the playbook was interrupted before it") for stem in playbook.planned if stem not in reached
        ]
        for step in playbook.steps:
            if step.folder is None:
                absent.append(Absent(step.phase, step.why_not_run or "did not run"))
                continue
            try:
                path = _found(step.folder, folder)
                judged[path] = judge_folder(path, profile)
                seconds[path] = step.seconds
            except (RunError, ProfileError, RecordError) as error:
                absent.append(Absent(step.phase, f"{step.folder}: {error}"))
    drills = [read_record(folder / DRILLS, DrillReport) for folder in folders if (folder / DRILLS).is_file()]
    for folder in folders:
        if folder not in playbooks and not (folder / DRILLS).is_file():
            judged.setdefault(folder.resolve(), judge_folder(folder, profile))
    order = list(PHASES)
    ordered = sorted(judged.values(), key=lambda one: (order.index(one.run.phase), one.run.opened_at, one.run.name))
    return Collection(ordered, absent, left_out, playbooks, seconds, drills)


def _found(recorded: str, playbook: Path) -> Path:
    """A step's folder, which is recorded from the repository's root: in the tree that the playbook lies in, which may be a copy."""
    root = playbook.resolve().parents[3:4]  # validation/results/playbook/<name>
    try:
        return next(
            (path for path in ((base / recorded).resolve() for base in [*root, REPOSITORY]) if path.is_dir()),
            REPOSITORY / recorded,
        )
    except (OSError, ValueError) as error:  # too long a name, or a NUL in it
        raise RunError(f"{recorded[:60]!r} is no folder: {error.args[-1]}") from error


def phases_of(folder: Path) -> list[Path]:
    """A playbook's folder stands for those of its phases that ran, where they lie: here or in a copy. Raises RecordError."""
    path = folder / PLAYBOOK
    if not path.is_file() or (folder / runs.RUN).exists():
        return [folder]
    book = read_record(path, Playbook)
    ran = [_found(step.folder, folder) for step in book.steps if step.folder is not None]
    if not ran:
        raise RecordError(f"{path}: no phase of this playbook ran; its report.md says why")
    return ran
