"""One self-contained HTML page of everything a set of runs says: `bringup report`. No script, no link to elsewhere, no network.

Every text that comes from a record goes through Jinja2's autoescape; the template marks nothing as safe. Pictures are PNG in data
URIs, so a host name in a legend is pixels. The page's Content-Security-Policy forbids the browser scripts and requests as well.
"""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2

from bringup.checks import catalogue
from bringup.compare import sidebyside as compare
from bringup.errors import NotComparable, RecordError
from bringup.judge import Judged
from bringup.plan.claims import QUESTIONS
from bringup.plan.phases import PHASES
from bringup.records import Kind, Outcome, Verdict
from bringup.report import drain, explain
from bringup.report import text as report
from bringup.report.collection import Collection
from bringup.report.figures import pairs as pair_figures
from bringup.report.figures import run as run_figures
from bringup.report.figures import training as training_figures

TEMPLATES = Path(__file__).parent / "templates"
MAX_BAD = 200  # verdicts of one run in its table; the run's own report.md has them all
MAX_NEXT = 20  # gates with their next commands
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
    """The page."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_one_line,
    )
    return environment.get_template("page.html.j2").render(_view(collection))


def _one_line(value: Any) -> Any:
    """No control characters in a record's text; escaping comes after this. What a macro of the template made is escaped already."""
    return report.plain(value) if type(value) is str else value


def _view(collection: Collection) -> dict[str, Any]:
    nodes = list(dict.fromkeys(node for one in collection.judged for node in one.run.nodes))
    header, rows, note = _training(collection.judged)
    proposed = drain.proposals(collection.judged)
    return {
        "outcome": collection.outcome,
        "mark": report.MARK,
        "counted": report.counted(collection.verdicts),
        "nodes": report_names(nodes),
        "node_count": len(nodes),
        "profiles": ", ".join(dict.fromkeys(one.verdicts.profile for one in collection.judged)),
        "opened": min((one.run.opened_at for one in collection.judged), default="unknown"),
        "questions": [(answer, QUESTIONS[answer.question]) for answer in collection.answers],
        "marked": report.marked,
        "scope": report.scope,
        "sections": [_section(one, f"run-{index}") for index, one in enumerate(collection.judged)],
        "seconds": {f"run-{index}": collection.seconds.get(one.folder) for index, one in enumerate(collection.judged)},
        "absent": [
            (PHASES[gone.phase].title if gone.phase in PHASES else gone.phase, gone.why) for gone in collection.absent
        ],
        "left_out": collection.left_out,
        "next": _next(collection.judged),
        "max_next": MAX_NEXT,
        "drains": [one.line for one in proposed],
        "commands": _commands(collection),
        "training_header": header,
        "training_rows": rows,
        "training_note": note,
        "training_pictures": _training_pictures(collection.judged) if rows else [],
    }


def report_names(nodes: Sequence[str]) -> str:
    """`n0, n1, … n1023 (1024)`."""
    if len(nodes) <= 2 * MAX_SUBJECTS:
        return ", ".join(nodes)
    return f"{', '.join(nodes[:MAX_SUBJECTS])}, … {nodes[-1]} ({len(nodes)})"


def _section(one: Judged, anchor: str) -> Section:
    run, verdicts = one.run, one.verdicts
    bad = report.not_passed(verdicts.verdicts)
    by_reason: dict[str, list[str]] = {}
    for entry in verdicts.not_applicable:
        by_reason.setdefault(entry.reason, []).append(entry.gate)
    dirty = ", with local changes" if run.git_dirty else ""
    facts = [
        ("folder", report.shown_path(one.folder)),
        ("opened", run.opened_at),
        ("nodes", f"{report_names(run.nodes)} × {run.gpus_per_node} GPUs, {run.ranks_per_node} rank(s) each"),
        (
            "profile",
            verdicts.profile
            if verdicts.profile == run.profile
            else f"{verdicts.profile} (the run was opened with {run.profile})",
        ),
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
        pictures=_pictures(one),
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
            report_names([verdict.subject for verdict in several]),
            _several([verdict.observed for verdict in several]),
            _several([verdict.expected for verdict in several]),
        )
        for gate, several in by_gate.items()
    ]


def _several(texts: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    shown = "; ".join(distinct[:3])
    return shown if len(distinct) <= 3 else f"{shown}; … ({len(distinct)} different)"


def _next(judged: Iterable[Judged]) -> list[Next]:
    """Per gate, worst first; commands are for the first run of those where it did not pass. What was not judged because of another
    gate is that gate's business."""
    by_gate: dict[str, list[tuple[Judged, list[Verdict]]]] = {}
    for one in judged:
        bad: dict[str, list[Verdict]] = {}
        for verdict in report.not_passed(one.verdicts.verdicts):
            if verdict.kind is not Kind.BLOCKED:
                bad.setdefault(verdict.gate, []).append(verdict)
        for gate, verdicts in bad.items():
            by_gate.setdefault(gate, []).append((one, verdicts))
    found = []
    for gate, runs in by_gate.items():
        first, several = runs[0]
        subjects = "; ".join(
            f"{one.run.phase}: {report_names([verdict.subject for verdict in bad])}" for one, bad in runs
        )
        found.append(
            Next(
                max(
                    (verdict.outcome for _, verdicts in runs for verdict in verdicts), key=lambda outcome: outcome.rank
                ),
                gate,
                subjects,
                report.sentence(several[0]),
                several[0].fix,
                explain.next_commands(several, first.folder, first.run),
            )
        )
    return sorted(found, key=lambda one: -one.outcome.rank)


def _commands(collection: Collection) -> list[str]:
    """What a person would run after reading."""
    folders = [report.shown_path(one.folder) for one in collection.judged]
    commands = []
    if collection.outcome not in (Outcome.PASS, Outcome.WARN):
        bad = [report.shown_path(one.folder) for one in collection.judged if one.verdicts.outcome is not Outcome.PASS]
        commands += [f"bringup explain {folder}" for folder in bad[:3]]
        commands += [f"bringup run --resume {report.shown_path(folder)}" for folder in collection.playbooks]
    elif folders:
        commands.append(
            f"bringup profile --from {' '.join(folders[:4])}{' …' if len(folders) > 4 else ''} -o measured.yaml"
        )
    return commands


def _data_uri(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode("ascii")


def _pictures(one: Judged) -> list[Picture]:
    """Drawn again, into a folder of their own: the run's may be read-only."""
    with tempfile.TemporaryDirectory(prefix="bringup-report-") as folder:
        into = Path(folder)
        drawn = run_figures.draw(one.folder, one.observations, one.profile, into)
        drawn += pair_figures.draw(one.observations, one.run.nodes, into)
        entry = _entry(one)
        if entry is not None:
            drawn += training_figures.draw_ranks(entry, into)
        return [Picture(title, _data_uri(into / name)) for title, name in drawn]


def _entry(one: Judged) -> compare.Entry | None:
    if not PHASES[one.run.phase].is_training:
        return None
    try:
        return compare.load(one.folder)
    except RecordError:
        return None  # the judge has said so in its notes


def _training(judged: Sequence[Judged]) -> tuple[list[str], list[list[str]], str]:
    """Table and note of `bringup compare`; no rows, and why, where it refuses."""
    folders = [one.folder for one in judged if _entry(one) is not None]
    if not folders:
        return (
            [],
            [],
            "" if not any(PHASES[one.run.phase].is_training for one in judged) else "no training came to its end",
        )
    try:
        return compare.table(folders)
    except NotComparable as error:
        return [], [], str(error)


def _training_pictures(judged: Sequence[Judged]) -> list[Picture]:
    entries = [entry for one in judged if (entry := _entry(one)) is not None]
    with tempfile.TemporaryDirectory(prefix="bringup-report-") as folder:
        return [
            Picture(f"Training runs: {path.stem}", _data_uri(path))
            for path in training_figures.draw(entries, Path(folder))
        ]
