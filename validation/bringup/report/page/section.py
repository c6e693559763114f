"""One run on the page: what failed, what was proven, its pictures."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bringup.checks import catalogue
from bringup.evidence.names import shortened
from bringup.judge import Judged
from bringup.plan.phases import PHASES
from bringup.records import Outcome, Verdict
from bringup.report import text as report
from bringup.report.figures import pairs as pair_figures
from bringup.report.figures import run as run_figures
from bringup.report.figures import training as training_figures
from bringup.report.page.links import Links, to_evidence
from bringup.report.page.pictures import Picture, data_uri
from bringup.report.page.training import entry_of

MAX_BAD = 200  # verdicts of one run in its table; the run's own report.md has them all


@dataclass(frozen=True)
class Passed:
    """Verdicts of one gate that passed."""

    gate: str
    proves: str
    subjects: str
    observed: str
    expected: str
    evidence: str  # of the first of them
    link: str | None


@dataclass(frozen=True)
class Section:
    """One run."""

    anchor: str
    title: str
    outcome: Outcome
    counted: str
    facts: list[tuple[str, str]]
    link: str | None  # to its folder
    bad: list[tuple[Verdict, str | None]]  # with the address of its evidence
    hidden: int  # bad ones beyond MAX_BAD
    passed: list[Passed]
    not_applicable: list[tuple[str, str]]  # reason, gates
    signs: list[tuple[str, str, str, str | None]]  # signature, line, evidence, its address
    notes: list[str]
    pictures: list[Picture]


def section(judged: Judged, anchor: str, links: Links) -> Section:
    run, verdicts = judged.run, judged.verdicts
    address = partial(to_evidence, links, judged.folder)
    bad = report.not_passed(verdicts.verdicts)
    by_reason: dict[str, list[str]] = {}
    for entry in verdicts.not_applicable:
        by_reason.setdefault(entry.reason, []).append(entry.gate)
    dirty = ", with local changes" if run.git_dirty else ""
    facts = [
        ("opened", run.opened_at),
        ("nodes", f"{shortened(run.nodes)} × {run.gpus_per_node} GPUs, {run.ranks_per_node} rank(s) each"),
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
        link=links(judged.folder) if judged.folder.is_dir() else None,
        bad=[(verdict, address(verdict.evidence)) for verdict in bad[:MAX_BAD]],
        hidden=max(0, len(bad) - MAX_BAD),
        passed=_passed(verdicts.verdicts, address),
        not_applicable=[(reason, ", ".join(gates)) for reason, gates in by_reason.items()],
        signs=[(sign.signature, sign.line, sign.evidence, address(sign.evidence)) for sign in verdicts.signs],
        notes=list(verdicts.notes),
        pictures=_pictures(judged),
    )


def _passed(verdicts: Iterable[Verdict], address: Callable[[str], str | None]) -> list[Passed]:
    by_gate: dict[str, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.outcome is Outcome.PASS:
            by_gate.setdefault(verdict.gate, []).append(verdict)
    return [
        Passed(
            gate,
            catalogue.GATES[gate].proves if gate in catalogue.GATES else "",
            shortened([verdict.subject for verdict in alike]),
            _several([verdict.observed for verdict in alike]),
            _several([verdict.expected for verdict in alike]),
            alike[0].evidence,
            address(alike[0].evidence),
        )
        for gate, alike in by_gate.items()
    ]


def _several(texts: Sequence[str]) -> str:
    distinct = list(dict.fromkeys(texts))
    shown = "; ".join(distinct[:3])
    return shown if len(distinct) <= 3 else f"{shown}; … ({len(distinct)} different)"


def _pictures(judged: Judged) -> list[Picture]:
    """Drawn again, into a folder of their own: the run's may be read-only."""
    with tempfile.TemporaryDirectory(prefix="bringup-report-") as folder:
        into = Path(folder)
        drawn = run_figures.draw(judged.folder, judged.observations, judged.profile, judged.training, into)
        drawn += pair_figures.draw(judged.observations, judged.run.nodes, into)
        entry = entry_of(judged)
        if entry is not None:
            drawn += training_figures.draw_ranks(entry, into)
        return [Picture(title, data_uri(into / name)) for title, name in drawn]
