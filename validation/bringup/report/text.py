"""Verdicts for people: the one screen in the terminal, and report.md. Everything shown comes from records.

Texts in records may come from logs and host names: control characters are removed and Markdown is escaped.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from statistics import median

from bringup.checks import catalogue
from bringup.known_faults.signatures import SIGNATURES
from bringup.plan import subjects as naming
from bringup.plan.claims import QUESTIONS
from bringup.plan.phases import PHASES
from bringup.records import (
    Answer,
    ClaimAnswer,
    Mark,
    Observation,
    Outcome,
    Playbook,
    Run,
    SiteUsed,
    Verdict,
    Verdicts,
)
from bringup.records.base import CONTROL
from bringup.results import REPOSITORY, ill_node

_COST = re.compile(r"probe\.(\w+)\.cpu_s")
_CONTROL = re.compile(f"[{CONTROL}]+")
_MARKDOWN = re.compile(r"([\\`*\[\]<>|&])")
_UNSAFE = re.compile(rf"[{CONTROL}\\`*\[\]<>|&]")  # either of them, in one look at a character
MARK = {Outcome.PASS: "PASS", Outcome.WARN: "WARN", Outcome.INCOMPLETE: "INCOMPLETE", Outcome.FAIL: "FAIL"}
MAX_LISTED = 12  # on the screen; the report lists all
MIN_ALIKE = 3  # verdicts of one reason share their lines on the screen from so many on
MAX_SIGNS = 3


def plain(text: str) -> str:
    """Safe for a terminal: one line, no control characters."""
    return _CONTROL.sub(" ", text).strip()


def escaped(text: str) -> str:
    """Safe for Markdown and the HTML made from it."""
    if not _UNSAFE.search(text):  # nearly all cells of a large fleet
        return text.strip()
    return _MARKDOWN.sub(r"\\\1", plain(text)).replace("\\<", "&lt;").replace("\\>", "&gt;").replace("\\&", "&amp;")


def shown_path(path: Path) -> str:
    """From the repository root when inside it."""
    for place in (Path(os.path.normpath(path.absolute())), path.resolve()):  # its results may be linked from elsewhere
        if place.is_relative_to(REPOSITORY):
            return str(place.relative_to(REPOSITORY))
    return str(path.resolve())


def counted(verdicts: Iterable[Verdict]) -> str:
    """`14 pass, 1 fail`: worst last, zeros left out but for pass."""
    counts = Counter(verdict.outcome for verdict in verdicts)
    return ", ".join(
        f"{counts[outcome]} {outcome}" for outcome in Outcome if counts[outcome] or outcome is Outcome.PASS
    )


def not_passed(verdicts: Iterable[Verdict]) -> list[Verdict]:
    return sorted((v for v in verdicts if v.outcome is not Outcome.PASS), key=lambda v: -v.outcome.rank)


def _by_reason(verdicts: Verdicts) -> dict[str, list[str]]:
    """Reason -> gates that the profile excludes for it."""
    grouped: dict[str, list[str]] = {}
    for entry in verdicts.not_applicable:
        grouped.setdefault(entry.reason, []).append(entry.gate)
    return grouped


def sentence(verdict: Verdict) -> str:
    cause = f" ({verdict.cause})" if verdict.cause and verdict.cause not in verdict.observed else ""
    return f"observed {verdict.observed}, expected {verdict.expected}{cause}"


def screen(folder: Path, run: Run, verdicts: Verdicts) -> str:
    """One phase on one screen: outcome, what failed and where, what is not proven, where the report is."""
    title = f"{PHASES[run.phase].title} on {len(run.nodes)} node(s)"
    lines = [f"{MARK[verdicts.outcome]:<10} {title}: {counted(verdicts.verdicts)}"]
    groups, left = on_screen(verdicts)
    for group in groups:
        lines += _shown_alone(group[0]) if len(group) == 1 else _shown_together(group)
    if left:
        lines.append(f"  … and {len(left)} more in the report")
    lines += [
        f"  not applicable: {plain(reason)}: {', '.join(gates)}" for reason, gates in _by_reason(verdicts).items()
    ]
    lines += [
        f"  sign: {sign.signature}: {_cause(sign.signature)} ({sign.evidence})" for sign in verdicts.signs[:MAX_SIGNS]
    ]
    lines += [f"  note: {plain(note)}" for note in verdicts.notes[:MAX_LISTED]]
    if run.site is not None:
        lines.append(f"  site: {plain(site_in_short(run.site))}")
    if verdicts.outcome is not Outcome.PASS:
        lines.append(f"  why: bringup explain {shlex.quote(shown_path(folder))}")
    lines.append(f"  report: {shown_path(folder / 'report.md')}")
    return "\n".join(lines)


_Key = tuple[object, ...]
_ALIKE: tuple[Callable[[Verdict], _Key | None], ...] = (  # tried in turn; None: not of this kind
    lambda v: (v.subject, v.kind, v.cause) if v.outcome is Outcome.INCOMPLETE else None,  # a dead node
    lambda v: (v.gate, v.kind, v.cause) if v.outcome is Outcome.INCOMPLETE else None,  # a number that nobody declared
    lambda v: (v.gate, v.outcome) if _is_pair(v) and v.outcome is not Outcome.INCOMPLETE else None,  # pairs of one node
)


def _is_pair(verdict: Verdict) -> bool:
    gate = catalogue.GATES.get(verdict.gate)
    return gate is not None and gate.per == "pair"


def on_screen(verdicts: Verdicts) -> tuple[list[list[Verdict]], list[Verdict]]:
    """(what the screen shows, those of one reason together; what it leaves to the report)."""
    groups = _alike(not_passed(verdicts.verdicts))
    return groups[:MAX_LISTED], [verdict for group in groups[MAX_LISTED:] for verdict in group]


def _alike(bad: Sequence[Verdict]) -> list[list[Verdict]]:
    """What is missing for one reason, or failed between pairs of nodes, together; all others alone. In the order of
    `bad`."""
    order = {id(verdict): number for number, verdict in enumerate(bad)}
    left, groups = list(bad), list[list[Verdict]]()
    for key_of in _ALIKE:
        together: dict[_Key, list[Verdict]] = {}
        for verdict in left:
            key = key_of(verdict)
            if key is not None:
                together.setdefault(key, []).append(verdict)
        groups += [group for group in together.values() if len(group) >= MIN_ALIKE]
        taken = {id(verdict) for group in groups for verdict in group}
        left = [verdict for verdict in left if id(verdict) not in taken]
    return sorted([*groups, *([verdict] for verdict in left)], key=lambda group: order[id(group[0])])


def remedy(verdict: Verdict) -> str:
    """What usually helps, in one word, and the section that says more."""
    return verdict.fix if verdict.action is None else f"{verdict.action}; {verdict.fix}"


def _shown_alone(verdict: Verdict) -> list[str]:
    return [
        f"  {MARK[verdict.outcome]:<10} {verdict.gate} [{verdict.subject}]: {plain(sentence(verdict))}",
        f"  {'':<10} evidence {verdict.evidence}; what to do: {remedy(verdict)}",
    ]


def _shown_together(group: Sequence[Verdict]) -> list[str]:
    """Two lines for all of them; the report has a row for each."""
    first, one_subject = group[0], group[0].subject == group[1].subject
    names = [verdict.gate if one_subject else verdict.subject for verdict in group]
    shown = ", ".join(names[:MIN_ALIKE]) + (", …" if len(names) > MIN_ALIKE else "")
    who, of = (f"[{first.subject}]", "gates") if one_subject else (first.gate, "subjects")
    what = first.cause
    if first.outcome is not Outcome.INCOMPLETE:
        common = set.intersection(*(set(naming.nodes_of(verdict.subject)) for verdict in group))
        of = f"pairs, all with {common.pop()}" if len(common) == 1 else "pairs"
        who, what = f"{first.gate} [{first.subject}]", sentence(first)
    return [
        f"  {MARK[first.outcome]:<10} {plain(f'{who}: {what} ({len(group)} {of}: {shown})')}",
        f"  {'':<10} all are in the report; what to do first: {remedy(first)}",
    ]


def columns(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table for the terminal. The only printer of one."""
    cells = [[plain(cell) for cell in row] for row in [header, *rows]]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """The same for Markdown."""
    lines = ["| " + " | ".join(header) + " |", "|" + " --- |" * len(header)]
    return lines + ["| " + " | ".join(escaped(cell) for cell in row) + " |" for row in rows]


def markdown(run: Run, verdicts: Verdicts, observations: Sequence[Observation] = ()) -> str:
    """report.md of one run. observations: for what the probes themselves took."""
    phase = PHASES[run.phase]
    dirty = "" if not run.git_dirty else ", with local changes"
    lines = [
        f"# {phase.title}: {MARK[verdicts.outcome]}",
        "",
        f"Run {escaped(run.name)}, opened {run.opened_at}, nodes {escaped(', '.join(run.nodes))} "
        f"× {run.gpus_per_node} GPUs, "
        f"profile {_profile(run, verdicts)}, bringup commit {(run.git_commit or 'unknown')[:12]}{dirty}, "
        f"Slurm job {run.slurm_job_id or 'none (started on the login host)'}.",
        "",
        f"{counted(verdicts.verdicts)}. Planned before the run: {sum(map(len, run.planned.values()))} verdicts.",
        "",
    ]
    if run.site is not None:
        lines += [f"Site {escaped(site_in_words(run.site))}.", ""]
    bad = not_passed(verdicts.verdicts)
    if bad:
        lines += ["## What failed, and what is not proven", ""]
        lines += table(
            ("outcome", "gate", "subject", "observed", "expected", "cause", "evidence", "what to do"),
            (
                (MARK[v.outcome], v.gate, v.subject, v.observed, v.expected, v.cause or "", v.evidence, remedy(v))
                for v in bad
            ),
        )
        lines.append("")
    passed = [v for v in verdicts.verdicts if v.outcome is Outcome.PASS]
    if passed:
        lines += ["## What was proven", ""]
        lines += table(
            ("gate", "it was seen that", "subject", "observed", "expected", "evidence"),
            ((v.gate, _proves(v.gate), v.subject, v.observed, v.expected, v.evidence) for v in passed),
        )
        lines.append("")
    if verdicts.not_applicable:
        lines += ["## Not applicable here, by the profile", ""]
        lines += table(("gate", "reason"), ((entry.gate, entry.reason) for entry in verdicts.not_applicable))
        lines.append("")
    if verdicts.signs:
        lines += ["## Signs of known faults in the logs", "", "They decide nothing; they say where to look.", ""]
        lines += table(
            ("sign", "cause", "line", "evidence", "next"),
            (
                (sign.signature, _cause(sign.signature), sign.line, sign.evidence, _next(sign.signature))
                for sign in verdicts.signs
            ),
        )
        lines.append("")
    costs = _costs(observations)
    if costs:
        lines += ["## What the probes themselves took", ""]
        lines += [*table(("probe", "on", "median, s of one core", "most, s of one core", "where"), costs), ""]
    if verdicts.notes:
        lines += ["## Notes on the evidence", "", *(f"- {escaped(note)}" for note in verdicts.notes), ""]
    lines += ["Evidence is relative to this folder. `bringup judge` on a copy of it gives the same verdicts.", ""]
    return "\n".join(lines)


def _costs(observations: Iterable[Observation]) -> list[tuple[str, ...]]:
    """A row per probe that reported its cost (probe.NAME.cpu_s)."""
    by_probe: dict[str, list[tuple[float, str]]] = {}
    for observation in observations:
        name = _COST.fullmatch(observation.quantity)
        if name and isinstance(observation.value, int | float):
            by_probe.setdefault(name[1], []).append((float(observation.value), observation.subject))
    rows: list[tuple[str, ...]] = []
    for probe, costs in sorted(by_probe.items()):
        most, where = max(costs)
        nodes = len({where for _, where in costs})
        rows.append((probe, f"{nodes} node(s)", f"{median(cost for cost, _ in costs):.2f}", f"{most:.2f}", where))
    return rows


def _cause(signature: str) -> str:
    return SIGNATURES[signature].cause if signature in SIGNATURES else "unknown to this version"


def _next(signature: str) -> str:
    return SIGNATURES[signature].do if signature in SIGNATURES else ""


def site_in_short(site: SiteUsed) -> str:
    """Its name, and what was not as it says."""
    differences = ", ".join(f"{name} {value}" for name, value in site.otherwise.items())
    return site.name + (f"; not as its file says: {differences}" if differences else "")


def site_in_words(site: SiteUsed) -> str:
    """The same with all that it says: `lab: partition gpu; environment NCCL_IB_HCA=mlx5_0`."""
    keys = "; ".join(f"{key} {_site_value(value)}" for key, value in site.says.items())
    return site_in_short(site).replace(site.name, f"{site.name}: {keys}", 1) if keys else site_in_short(site)


def site_rows(site: SiteUsed) -> list[tuple[str, str, str]]:
    """A row for each key, and one for each variable that is another one here."""
    rows = [(key, _site_value(value), site.otherwise.get(key, "")) for key, value in site.says.items()]
    return rows + [(name, "", value) for name, value in site.otherwise.items() if name not in site.says]


def _site_value(value: str | list[str] | dict[str, str | list[str]]) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name}={_site_value(inner)}" for name, inner in value.items())
    return value if isinstance(value, str) else " ".join(value)


def _profile(run: Run, verdicts: Verdicts) -> str:
    if verdicts.profile == run.profile:
        return escaped(run.profile)
    return f"{escaped(verdicts.profile)} (the run was opened with {escaped(run.profile)})"


def _proves(gate: str) -> str:
    return catalogue.GATES[gate].proves if gate in catalogue.GATES else ""


def marked(mark: Mark) -> str:
    return mark.upper()


def answered(answer: Answer) -> str:
    """A question on the screen: its answer, number and scope in one line, and what that does not claim."""
    lines = [f"{marked(answer.mark):<10} {answer.question}. {QUESTIONS[answer.question]}"]
    return "\n".join([*lines, *(f"{'':<10}    {plain(line)}" for line in (answer.line, *answer.reservations))])


def scope(claim: ClaimAnswer) -> str:
    """Number and scope of a claim in one line."""
    counted = f"{claim.verdicts} verdicts on {len(claim.nodes)} node(s)" if claim.verdicts else ""
    return "; ".join([text for text in (*claim.numbers, claim.why, counted) if text])


def answers_markdown(answers: Sequence[Answer]) -> list[str]:
    """The six questions, then every claim with its number and scope."""
    lines = table(
        ("question", "answer", "in one line"),
        (
            (
                f"{answer.question}. {QUESTIONS[answer.question]}",
                marked(answer.mark),
                "; ".join([answer.line, *answer.reservations]),
            )
            for answer in answers
        ),
    )
    lines += ["", "What each answer claims:", ""]
    return lines + table(
        ("question", "claim", "answer", "number and scope"),
        (
            (str(answer.question), claim.says, marked(claim.mark), scope(claim))
            for answer in answers
            for claim in answer.claims
        ),
    )


def playbook_markdown(playbook: Playbook, outcome: Outcome) -> str:
    """report.md of a whole playbook run: the six questions, then the steps."""
    lines = [
        f"# Bring-up of {len(playbook.nodes)} node(s): {MARK[outcome]}",
        "",
        f"Nodes {escaped(', '.join(playbook.nodes))}, profile {escaped(playbook.profile)}"
        f"{'' if playbook.site is None else f', site {escaped(playbook.site)}'}.",
        "",
        "## The six questions",
        "",
    ]
    lines += answers_markdown(playbook.answers)
    lines += ["", "## Steps", ""]
    lines += table(
        ("step", "outcome", "seconds", "report"),
        (
            (
                PHASES[step.phase].title,
                MARK[step.outcome] if step.folder else "NOT RUN, not proven",
                f"{step.seconds:.0f}",
                f"{step.folder}/report.md" if step.folder else step.why_not_run or "",
            )
            for step in playbook.steps
        ),
    )
    left_out = [*playbook.left_out, *map(ill_node, playbook.ill_nodes)]
    if left_out:
        lines += ["", "## Not asked of these nodes", "", *(f"- {escaped(reason)}" for reason in left_out)]
    return "\n".join([*lines, ""])
