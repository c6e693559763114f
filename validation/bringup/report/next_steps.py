"""What to do next: a card per cause, each command once.

What failed has the cause that its guide describes: gates fail for the same reasons when they share a guide. What is
incomplete has the cause that its verdict names.
"""

import shlex
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from bringup.kernel.facts.names import listed
from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.judge import Judged
from bringup.kernel.plan import subjects
from bringup.kernel.records import Mark, Outcome, Run, Verdict, grouped, worst
from bringup.kernel.results import REPOSITORY
from bringup.report import explain, text
from bringup.report.collection import Collection
from bringup.report.links import Links, nowhere, to_evidence
from bringup.report.view import spread

MAX_CARDS = 12
MAX_UNFOLDED = 5  # cards: two screens hold all that is needed first
MAX_FINDINGS = 6  # gates of one card
MAX_EXPLAINED = 3  # runs, the worst ones
_Bad = tuple[Judged, Verdict]


class Finding(NamedTuple):
    """One gate of a card, with the subjects of the card's outcome."""

    gate: str
    subjects: str
    sentence: str  # of the first subject
    evidence: str
    link: str | None


@dataclass(frozen=True)
class Card:
    outcome: Outcome
    subjects: str
    action: str  # in one word what usually helps; empty: none is known
    count: int  # checks
    findings: list[Finding]
    hidden: int  # gates beyond MAX_FINDINGS
    fix: str  # the section of docs/ to read
    commands: list[str]


class Arranged(NamedTuple):
    """The cards as the page shows them. Warnings are folded where something worse comes before them."""

    unfolded: list[Card]
    folded: list[Card]
    warnings: list[Card]
    left_count: int  # cards beyond MAX_CARDS


def arranged(cards: Sequence[Card]) -> Arranged:
    shown = list(cards[:MAX_CARDS])
    causes = [card for card in shown if card.outcome is not Outcome.WARN] or shown
    warnings = [card for card in shown if card not in causes]
    return Arranged(causes[:MAX_UNFOLDED], causes[MAX_UNFOLDED:], warnings, len(cards) - len(shown))


def cards(judged: Iterable[Judged], links: Links) -> list[Card]:
    """Make one card for each first cause, worst first. A card names the subjects of its outcome alone: one that is only
    incomplete is not accused. Commands are for its first run, and appear once."""
    first = [(run, verdict) for run in judged for verdict in explain.causes_of(run.verdicts).first]
    by_cause = grouped((explain.cause_of(verdict), (run, verdict)) for run, verdict in first)
    failed = {verdict.gate for bad in by_cause.values() for _, verdict in bad if verdict.outcome is Outcome.FAIL}
    unsorted = [
        _card(bad, links)
        for bad in by_cause.values()
        if any(verdict.outcome is not Outcome.INCOMPLETE or verdict.gate not in failed for _, verdict in bad)
    ]
    return _each_command_once(sorted(unsorted, key=lambda card: -card.outcome.rank))


def repairs(judged: Iterable[Judged]) -> list[str]:
    """Return a line for each thing that failed: what usually helps, where, and what is wrong there."""
    failed = [card for card in cards(judged, nowhere) if card.outcome is Outcome.FAIL]
    lines = [f"{card.action.upper() or 'LOOK AT':<10} {card.subjects}: {card.findings[0].sentence}" for card in failed]
    more = len(lines) - MAX_CARDS
    return lines[:MAX_CARDS] + ([f"… and {more} more in the report"] if more > 0 else [])


def counted(judged: Sequence[Judged]) -> str:
    """Count all checks, as the cards have them: `474 checks: 388 passed, 2 failed for 2 causes, 84 incomplete as a
    consequence`. Nothing else counts causes."""
    causes = cards(judged, nowhere)
    has = Counter(verdict.outcome for run in judged for verdict in run.verdicts.verdicts)
    parts = [f"{has[Outcome.PASS]} passed"]
    for outcome, word in ((Outcome.FAIL, "failed"), (Outcome.INCOMPLETE, "incomplete"), (Outcome.WARN, "warned")):
        own = [card.count for card in causes if card.outcome is outcome]
        parts += [f"{sum(own)} {word} for {len(own)} cause{'s'[: len(own) > 1]}"] if own else []
        has[outcome] -= sum(own)
    left = [verdict for run in judged for verdict in explain.causes_of(run.verdicts).undeclared]
    asked_for = sum(verdict.outcome is Outcome.INCOMPLETE for verdict in left)
    others = {"incomplete as a consequence": has[Outcome.INCOMPLETE] - asked_for}
    others |= {"without the limit that the site asks for": asked_for, "without a limit": has[Outcome.NO_LIMIT]}
    parts += [f"{number} {words}" for words, number in others.items() if number]
    count = sum(len(run.verdicts.verdicts) for run in judged)
    if has[Outcome.PASS] == count and count:
        return f"all {count} checks passed"
    if has[Outcome.PASS] + has[Outcome.NO_LIMIT] == count and count:
        return f"{has[Outcome.PASS]} checks passed, {has[Outcome.NO_LIMIT]} numbers have no limit"
    return f"{count} checks: {', '.join(parts)}"


def _card(bad: Sequence[_Bad], links: Links) -> Card:
    outcome = worst([verdict.outcome for _, verdict in bad])
    accused = [(run, verdict) for run, verdict in bad if verdict.outcome is outcome]
    first_run, first = accused[0]
    by_gate = grouped((verdict.gate, (run, verdict)) for run, verdict in accused)
    alike = [verdict for run, verdict in by_gate[first.gate] if run is first_run]
    return Card(
        outcome=outcome,
        subjects=listed([_where(run.run, verdict.subject) for run, verdict in accused]),
        action="" if first.action is None else str(first.action),
        count=len(accused),
        findings=[_finding(group, links) for group in list(by_gate.values())[:MAX_FINDINGS]],
        hidden=max(0, len(by_gate) - MAX_FINDINGS),
        fix=first.fix,
        commands=explain.next_commands(alike, first_run),
    )


def _where(run: Run, subject: str) -> str:
    """Say where, in a reader's words: `n0 and n2` of a pair, the nodes of a scale of this run."""
    several = subjects.nodes_of_scale(subject)
    nodes = run.nodes[:several] if several else subjects.nodes_of(subject)
    if subject == subjects.JOB:
        return "the whole run"
    return " and ".join(nodes) if len(nodes) == 2 else listed(nodes) if several else subject


def _finding(group: Sequence[_Bad], links: Links) -> Finding:
    run, first = group[0]
    by_phase = grouped((other.run.phase, verdict.subject) for other, verdict in group)
    by_subjects = grouped((listed(subjects), phase) for phase, subjects in by_phase.items())
    where = "; ".join(f"{', '.join(phases)}: {subjects}" for subjects, phases in by_subjects.items())
    sentences = dict.fromkeys(text.sentence(verdict) for _, verdict in group)
    sentence = next(iter(sentences))
    if len(sentences) > 1:  # a number that is too small on each is one fault of what they share: its range says so
        every = [verdict for _, verdict in group]
        are_numbers = all(is_number(verdict.value) and verdict.cause is None for verdict in every)
        sentence = f"{first.subject} {sentence}" + (f" (all: {spread(every)})" if are_numbers else "")
    return Finding(first.gate, where, sentence, first.evidence, to_evidence(links, run.folder, first.evidence))


def _each_command_once(cards: Sequence[Card]) -> list[Card]:
    shown: set[str] = set()
    once = []
    for card in cards:
        once.append(replace(card, commands=[command for command in card.commands if command not in shown]))
        shown |= set(card.commands)
    return once


def commands(collection: Collection) -> list[str]:
    """Return what a person would run after reading, from the root of the repository."""

    def shown(folders: Iterable[Path]) -> list[str]:
        return [shlex.quote(text.shown_path(folder)) for folder in folders]

    bad = [judged for judged in collection.judged if judged.verdicts.outcome not in (Outcome.PASS, Outcome.WARN)]
    bad.sort(key=lambda judged: -judged.verdicts.outcome.rank)
    named = [judged.folder for judged in collection.judged if judged.folder not in collection.seconds]
    whole = [*collection.playbooks, *named]  # a playbook's folder stands for its runs
    if collection.outcome in (Outcome.PASS, Outcome.WARN):
        are_real = collection.headline.mark is not Mark.NOT_PROVEN  # numbers of stand-ins are no floors
        return [f"bringup profile --from {' '.join(shown(whole))} -o measured.yaml"] if whole and are_real else []
    commands = [f"bringup explain {folder}" for folder in shown([judged.folder for judged in bad][:MAX_EXPLAINED])]
    ours = [folder for folder in collection.playbooks if folder.resolve().is_relative_to(REPOSITORY)]
    return commands + [f"bringup run --resume {folder}" for folder in shown(ours)]
