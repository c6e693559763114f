"""One self-contained HTML page of everything a set of runs says: `bringup report`. Pictures are PNG in data URIs, so
a host name in a legend is pixels."""

from __future__ import annotations

import base64
import shlex
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from bringup.checks import catalogue
from bringup.compare import entries, sidebyside
from bringup.compare.entries import Entry
from bringup.errors import NotComparable, RecordError
from bringup.judge import Judged
from bringup.plan.claims import QUESTIONS
from bringup.plan.phases import PHASES
from bringup.records import Outcome, Verdict, worst
from bringup.report import drain, explain, html
from bringup.report import text as report
from bringup.report.collection import Collection
from bringup.report.figures import pairs as pair_figures
from bringup.report.figures import run as run_figures
from bringup.report.figures import training as training_figures
from bringup.results import REPOSITORY

MAX_BAD = 200  # verdicts of one run in its table; the run's own report.md has them all
MAX_NEXT = 20  # gates with their next commands
MAX_EXPLAINED = 3  # runs, the worst ones
MAX_SUBJECTS = 6


@dataclass(frozen=True)
class Picture:
    title: str
    source: str  # data URI


@dataclass(frozen=True)
class Passed:
    """Verdicts of one gate that passed."""

    gate: str
    proves: str
    subjects: str
    observed: str
    expected: str


@dataclass(frozen=True)
class Next:
    """One gate that did not pass, in any run: what was seen, what to read and to run."""

    outcome: Outcome
    gate: str
    subjects: str
    said: str
    fix: str
    commands: list[str]


@dataclass(frozen=True)
class Section:
    """One run."""

    anchor: str
    title: str
    outcome: Outcome
    counted: str
    facts: list[tuple[str, str]]
    bad: list[Verdict]
    hidden: int  # bad ones beyond MAX_BAD
    passed: list[Passed]
    not_applicable: list[tuple[str, str]]  # reason, gates
    signs: list[tuple[str, str, str]]  # signature, line, evidence
    notes: list[str]
    pictures: list[Picture]


def render(collection: Collection) -> str:
    return html.render("page.html.j2", _view(collection))


def _view(collection: Collection) -> dict[str, Any]:
    nodes = list(dict.fromkeys(node for judged in collection.judged for node in judged.run.nodes))
    proposed = drain.proposals(collection.judged)
    return {
        "outcome": collection.outcome,
        "mark": report.MARK,
        "counted": report.counted(collection.verdicts),
        "nodes": report_names(nodes),
        "node_count": len(nodes),
        "profiles": ", ".join(dict.fromkeys(judged.verdicts.profile for judged in collection.judged)),
        "sites": ", ".join(dict.fromkeys(run.run.site.name for run in collection.judged if run.run.site is not None)),
        "opened": min((judged.run.opened_at for judged in collection.judged), default="unknown"),
        "questions": [(answer, QUESTIONS[answer.question]) for answer in collection.answers],
        "marked": report.marked,
        "scope": report.scope,
        "sections": [_section(judged, f"run-{index}") for index, judged in enumerate(collection.judged)],
        "seconds": {
            f"run-{index}": collection.seconds.get(judged.folder) for index, judged in enumerate(collection.judged)
        },
        "absent": [
            (PHASES[gone.phase].title if gone.phase in PHASES else gone.phase, gone.why) for gone in collection.absent
        ],
        "left_out": collection.left_out,
        "next": _next(collection.judged),
        "max_next": MAX_NEXT,
        "drains": [judged.line for judged in proposed],
        "commands": _commands(collection),
        "training": _training(collection.judged),
    }


def report_names(nodes: Sequence[str]) -> str:
    """`n0, n1, … n1023 (1024)`."""
    if len(nodes) <= 2 * MAX_SUBJECTS:
        return ", ".join(nodes)
    return f"{', '.join(nodes[:MAX_SUBJECTS])}, … {nodes[-1]} ({len(nodes)})"


def _section(judged: Judged, anchor: str) -> Section:
    run, verdicts = judged.run, judged.verdicts
    bad = report.not_passed(verdicts.verdicts)
    by_reason: dict[str, list[str]] = {}
    for entry in verdicts.not_applicable:
        by_reason.setdefault(entry.reason, []).append(entry.gate)
    dirty = ", with local changes" if run.git_dirty else ""
    facts = [
        ("folder", report.shown_path(judged.folder)),
        ("opened", run.opened_at),
        ("nodes", f"{report_names(run.nodes)} × {run.gpus_per_node} GPUs, {run.ranks_per_node} rank(s) each"),
        (
            "profile",
            verdicts.profile
            if verdicts.profile == run.profile
            else f"{verdicts.profile} (the run was opened with {run.profile})",
        ),
        *([] if run.site is None else [("site", report.site_in_words(run.site))]),
        ("bringup commit", f"{(run.git_commit or 'unknown')[:12]}{dirty}"),
        ("Slurm job", run.slurm_job_id or "none (started on the login host)"),
        ("planned before the run", f"{sum(map(len, run.planned.values()))} verdicts"),
    ]
    return Section(
        anchor=anchor,
        title=PHASES[run.phase].title,
        outcome=verdicts.outcome,
        counted=report.counted(verdicts.verdicts),
        facts=facts,
        bad=bad[:MAX_BAD],
        hidden=max(0, len(bad) - MAX_BAD),
        passed=_passed(verdicts.verdicts),
        not_applicable=[(reason, ", ".join(gates)) for reason, gates in by_reason.items()],
        signs=[(sign.signature, sign.line, sign.evidence) for sign in verdicts.signs],
        notes=list(verdicts.notes),
        pictures=_pictures(judged),
    )


def _passed(verdicts: Iterable[Verdict]) -> list[Passed]:
    by_gate: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.outcome is Outcome.PASS:
            by_gate.setdefault(verdict.gate, []).append(verdict)
    return [
        Passed(
            gate,
            catalogue.GATES[gate].proves if gate in catalogue.GATES else "",
            report_names([verdict.subject for verdict in alike]),
            _several([verdict.observed for verdict in alike]),
            _several([verdict.expected for verdict in alike]),
        )
        for gate, alike in by_gate.items()
    ]


def _several(texts: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    shown = "; ".join(distinct[:3])
    return shown if len(distinct) <= 3 else f"{shown}; … ({len(distinct)} different)"


def _next(judged: Iterable[Judged]) -> list[Next]:
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
                "; ".join(f"{phase}: {report_names(list(dict.fromkeys(on)))}" for phase, on in subjects.items()),
                report.sentence(group[0]),
                group[0].fix,
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


def _commands(collection: Collection) -> list[str]:
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


def _data_uri(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def _pictures(judged: Judged) -> list[Picture]:
    """Drawn again, into a folder of their own: the run's may be read-only."""
    with tempfile.TemporaryDirectory(prefix="bringup-report-") as folder:
        into = Path(folder)
        drawn = run_figures.draw(judged.folder, judged.observations, judged.profile, into)
        drawn += pair_figures.draw(judged.observations, judged.run.nodes, into)
        entry = _entry(judged)
        if entry is not None:
            drawn += training_figures.draw_ranks(entry, into)
        return [Picture(title, _data_uri(into / name)) for title, name in drawn]


def _entry(judged: Judged) -> Entry | None:
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


def _training(judged: Sequence[Judged]) -> Training:
    trained = [run for run in judged if PHASES[run.run.phase].is_training]
    known = [entry for run in trained if (entry := _entry(run)) is not None]
    names = {entry.folder for entry in known}
    left_out = [run.run.name for run in trained if run.folder not in names]
    notes = (
        [f"not here, because it did not end or its evidence does not hold: {', '.join(left_out)}"] if left_out else []
    )
    if not known:
        return Training([], [], "; ".join(notes), [])
    try:
        entries.refuse_repeated(known)
        found = sidebyside.compare(known)
    except NotComparable as error:
        return Training([], [], "; ".join([str(error), *notes]), [])
    rows = [row.cells for row in found.rows]
    return Training(sidebyside.HEADER, rows, "; ".join([found.note, *notes]), _training_pictures(known))


def _training_pictures(known: Sequence[Entry]) -> list[Picture]:
    with tempfile.TemporaryDirectory(prefix="bringup-report-") as folder:
        return [
            Picture(f"Training runs: {path.stem}", _data_uri(path))
            for path in training_figures.draw(known, Path(folder))
        ]
