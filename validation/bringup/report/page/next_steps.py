"""What to do next: a row per gate among the first causes, and the commands that a person would run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from bringup.judge import Judged
from bringup.records import Outcome, Verdict, worst
from bringup.report import explain
from bringup.report import text as report
from bringup.report.collection import Collection
from bringup.report.page.names import shortened
from bringup.results import REPOSITORY

MAX_ROWS = 20  # gates with their next commands
MAX_EXPLAINED = 3  # runs, the worst ones


@dataclass(frozen=True)
class Next:
    """One gate that did not pass, in any run: what was seen, what to read and to run."""

    outcome: Outcome
    gate: str
    subjects: str
    said: str
    fix: str
    commands: list[str]


def rows(judged: Iterable[Judged]) -> list[Next]:
    """Per gate among the first causes, worst first. A row names the subjects of its outcome alone: one that is only
    incomplete is not accused. Commands are for the first of its runs, and stand once."""
    by_gate: dict[str, list[tuple[Judged, Verdict]]] = {}
    for run in judged:
        for verdict in explain.causes_of(run.verdicts).first:
            by_gate.setdefault(verdict.gate, []).append((run, verdict))
    rows = []
    for gate, found in by_gate.items():
        outcome = worst([verdict.outcome for _, verdict in found])
        named = [(run, verdict) for run, verdict in found if verdict.outcome is outcome]
        subjects: dict[str, list[str]] = {}
        for run, verdict in named:
            subjects.setdefault(run.run.phase, []).append(verdict.subject)
        first = named[0][0]
        group = [verdict for run, verdict in named if run is first]
        rows.append(
            Next(
                outcome,
                gate,
                "; ".join(f"{phase}: {shortened(list(dict.fromkeys(on)))}" for phase, on in subjects.items()),
                report.sentence(group[0]),
                report.remedy(group[0]),
                explain.next_commands(group, first.folder, first.run),
            )
        )
    rows.sort(key=lambda row: -row.outcome.rank)
    return _each_command_once(rows)


def _each_command_once(rows: Sequence[Next]) -> list[Next]:
    shown: set[str] = set()
    once = []
    for row in rows:
        once.append(replace(row, commands=[command for command in row.commands if command not in shown]))
        shown |= set(row.commands)
    return once


def commands(collection: Collection) -> list[str]:
    """What a person would run after reading, from the root of the repository."""

    def shown(folders: Iterable[Path]) -> list[str]:
        return [shlex.quote(report.shown_path(folder)) for folder in folders]

    bad = [judged for judged in collection.judged if judged.verdicts.outcome not in (Outcome.PASS, Outcome.WARN)]
    bad.sort(key=lambda judged: -judged.verdicts.outcome.rank)
    named = [judged.folder for judged in collection.judged if judged.folder not in collection.seconds]
    whole = [*collection.playbooks, *named]  # a playbook's folder stands for its runs
    if collection.outcome in (Outcome.PASS, Outcome.WARN):
        return [f"bringup profile --from {' '.join(shown(whole))} -o measured.yaml"] if whole else []
    commands = [f"bringup explain {folder}" for folder in shown([judged.folder for judged in bad][:MAX_EXPLAINED])]
    ours = [folder for folder in collection.playbooks if folder.resolve().is_relative_to(REPOSITORY)]
    return commands + [f"bringup run --resume {folder}" for folder in shown(ours)]
