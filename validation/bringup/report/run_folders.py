"""Runs that folders name: a run's own, those of a playbook or a sweep, all of a checkout."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from bringup.kernel import results
from bringup.kernel.errors import NotComparable, RecordError, RunError
from bringup.kernel.plan.phases import NODES, PHASES
from bringup.kernel.records import Run
from bringup.kernel.records.base import read_record
from bringup.kernel.results import CLOSED, PACKED, PLAYBOOK, PLAYBOOKS, PREFLIGHTS, REPOSITORY, RUN, SWEEP, SWEEPS
from bringup.report.campaigns import LeftOut, Playbook, Step, Sweep


class Absent(NamedTuple):
    """A planned phase without a run to judge."""

    phase: str
    why: str


@dataclass(frozen=True)
class NamedRuns:
    """Runs that folders name. A run's folder names itself; the folder of a playbook or sweep names its runs."""

    folders: list[Path] = field(default_factory=list)  # may hold one run several times
    absent: list[Absent] = field(default_factory=list)
    # phases that could not be requested for a playbook's nodes, with the reason
    left_out: list[str] = field(default_factory=list)
    unhealthy_nodes: list[str] = field(default_factory=list)  # left out by later phases
    set_aside: list[str] = field(default_factory=list)  # nodes that no phase took, and why
    playbooks: list[Path] = field(default_factory=list)
    steps: dict[Path, Step] = field(default_factory=dict)  # of the playbooks' runs
    varied: list[str] = field(default_factory=list)  # arguments in which the runs of a sweep differ

    @property
    def once(self) -> list[Path]:
        return list({folder.resolve(): folder for folder in reversed(self.folders)}.values())[::-1]


def every_run(tree: Path = REPOSITORY) -> list[Path]:
    """Find all runs of a checkout that were closed, of all phases, but not the short ones of a preflight: a load of 10
    s is no number to compare with one of 60 s."""
    folders = {phase.results for phase in PHASES.values()}
    runs = {path.parent for folder in sorted(folders) for path in (tree / folder).glob(f"*/{RUN}")}
    looks = {path.name for path in (tree / PREFLIGHTS).glob("*")}
    return sorted(run for run in runs if (run / CLOSED).is_file() and run.name.rpartition("-")[0] not in looks)


def refuse_other_clusters(runs: Iterable[tuple[Path, Run]]) -> None:
    """Refuse runs of two clusters, whose nodes may have the same names. Raises NotComparable."""
    known: list[tuple[Path, Run]] = []
    for folder, run in runs:
        if other := next((pair for pair in known if run.of_cluster.is_another(pair[1].of_cluster)), None):
            there = f"{other[0]} of {other[1].of_cluster}"
            raise NotComparable(f"{folder} is of cluster {run.of_cluster}, {there}: give runs of one")
        known.append((folder, run))


def unhealthy_node(entry: LeftOut) -> str:
    return f"{entry.node}: excluded after {entry.phase}: {entry.why}"


def find(folders: Sequence[Path]) -> NamedRuns:
    """Resolve folders of runs, playbooks and sweeps. A missing run of one of these is reported as absent. Raises
    RecordError for a playbook or sweep that cannot be read, RunError for a playbook without any of its runs."""
    resolved = NamedRuns()
    for folder in folders:
        if is_of(folder, SWEEP):
            sweep = read_record(folder / SWEEP, Sweep)
            resolved.varied.extend(name for name in {**sweep.vary, **sweep.variants[-1]} if name != NODES)
            for run in sweep.runs:
                try:
                    resolved.folders.append(folder_in_tree(folder, run.folder, SWEEPS, sweep.phase))
                except RunError as error:
                    resolved.absent.append(Absent(sweep.phase, str(error)))
            continue
        if not is_of(folder, PLAYBOOK):
            resolved.folders.append(folder)
            continue
        playbook = read_record(folder / PLAYBOOK, Playbook)
        resolved.playbooks.append(folder)
        resolved.left_out.extend([*playbook.left_out, *map(unhealthy_node, playbook.unhealthy_nodes)])
        resolved.unhealthy_nodes.extend(entry.node for entry in playbook.unhealthy_nodes)
        resolved.set_aside.extend(playbook.set_aside)
        unreached = dict.fromkeys(playbook.planned, "the playbook was interrupted before it")
        of_steps: dict[Path, Step] = {}
        for step in playbook.steps:
            unreached.pop(step.phase, None)
            try:
                of_steps[step_folder(folder, step)] = step
            except RunError as error:
                resolved.absent.append(Absent(step.phase, str(error)))
        resolved.absent.extend(Absent(stem, why) for stem, why in unreached.items())
        resolved.folders.extend(of_steps)
        resolved.steps.update(of_steps)
        ran = [step for step in playbook.steps if step.folder is not None]
        if ran and tree_of(folder) is None and not of_steps:  # one line for all runs
            expected = f"expected {ran[0].folder}, or the end of that path, in this folder or beside it"
            cure = f"copy them, or name the playbook where it was written, TREE/{PLAYBOOKS}"
            raise RunError(f"{folder}: none of its {len(ran)} runs was copied with it: {expected}; {cure}")
    return resolved


def is_of(folder: Path, record: str) -> bool:
    """Say whether the folder is a playbook's, or a sweep's: its record is PLAYBOOK or SWEEP."""
    return results.holds(folder, record) and not results.holds(folder, RUN)


def step_folder(playbook: Path, step: Step) -> Path:
    """Find the run folder of a step: in the same tree as the playbook (the repository or a copy of it), or near a
    playbook that is in no tree. Raises RunError when it does not exist."""
    if step.folder is None:
        raise RunError(step.why_not_run or "did not run")
    return folder_in_tree(playbook, step.folder, PLAYBOOKS, step.phase)


def folder_in_tree(holder: Path, shown: str, place: Path, phase: str) -> Path:
    """Find a run's folder, as the record in `holder` names it. place: where such records lie in a tree; where this one
    does not, the run may lie near it. Raises RunError."""
    if (tree := tree_of(holder, place)) is None:
        return _near(holder, shown, place.name, phase)
    try:
        path = Path(os.path.normpath(tree / shown))
        if not path.is_relative_to(tree):
            raise RunError(f"{shown[:60]!r} lies outside of {tree}, in which its {place.name} lies; name it")
        there = path.is_dir()
    except (OSError, ValueError) as error:  # too long a name, or a NUL in it
        raise RunError(f"{shown[:60]!r} is not a folder: {error.args[-1]}") from error
    if not there:
        raise RunError(f"{shown} is not in {tree}; it was removed, or not copied with the {place.name}")
    return path


def _is_named(folder: Path, name: str) -> bool:
    """Say whether it is the run of this name. One that cannot be read is not."""
    try:
        return results.holds(folder, RUN) and read_record(folder / RUN, Run).name == name
    except RecordError:
        return False


def _near(holder: Path, shown: str, kind: str, phase: str) -> Path:
    """Find the run's folder inside of `holder` or beside it, by an end of its path: validation/results/smoke/NAME,
    results/smoke/NAME or smoke/NAME; NAME alone only where it names the phase. Or the run of that name in a zip of
    `bringup report`, unpacked. Raises RunError."""
    parts = Path(shown).parts
    ends = [parts[first:] for first in range(len(parts)) if first < len(parts) - 1 or parts[-1].startswith(f"{phase}-")]
    if ".." not in parts and not Path(shown).is_absolute():
        for path in (base.joinpath(*end) for base in (holder, holder.absolute().parent) for end in ends):
            if results.holds(path, RUN):
                return path
        for path in sorted((holder.absolute().parent.parent / PACKED).glob("*")):
            if path.name.endswith(f"-{phase}") and _is_named(path, parts[-1]):
                return path
    raise RunError(f"{shown[:60]!r} is neither in {holder} nor beside it: copy it with its {kind}, or name it")


def tree_of(holder: Path, place: Path = PLAYBOOKS) -> Path | None:
    """Return the repository, or the copy of it, that this folder lies in, also through links. None: in neither."""
    for path in (Path(os.path.normpath(holder.absolute())), holder.resolve()):
        if path.parent.parts[-len(place.parts) :] == place.parts:
            return path.parents[len(place.parts)]
    return None
