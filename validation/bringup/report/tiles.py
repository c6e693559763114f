"""The six questions at a glance: a tile each, with the number that is nearest to its limit, or how many claims hold."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from bringup.answers import in_words
from bringup.evidence.names import listed
from bringup.evidence.parsed import is_number
from bringup.plan import catalogue
from bringup.plan.claims import QUESTION_NAMES
from bringup.records import Answer, Mark, Outcome, Verdict
from bringup.records.grouped import grouped

MOST = 110  # characters of a reason
_SIDES = ("at_least", "at_most")
_SHOWS_ITS_LINE = (Mark.FAIL, Mark.INCOMPLETE, Mark.WARN)


@dataclass(frozen=True)
class Tile:
    answer: Answer
    name: str
    number: str
    reason: str


def tiles(answers: Sequence[Answer], verdicts: Iterable[Verdict] = ()) -> list[Tile]:
    """Make tiles. verdicts: of the report; those that failed are counted."""
    failed = grouped(
        (catalogue.question_of(catalogue.GATES[verdict.gate]), verdict.subject)
        for verdict in verdicts
        if verdict.outcome is Outcome.FAIL and verdict.gate in catalogue.GATES
    )
    return [_tile(answer, failed.get(answer.question, [])) for answer in answers]


def _tile(answer: Answer, failed: Sequence[str]) -> Tile:
    """failed: subjects of failed checks of this question; the repair list says in words what is wrong."""
    # where something failed, and no number is beyond its limit, it was no number that failed
    margins = [each for each in _margins(answer) if answer.mark is not Mark.FAIL or each[0] < 1]
    checks = f"{len(failed)} failed check{'s'[: len(failed) > 1]}" if failed else ""
    number = min(margins)[1] if margins else checks or _claims(answer)
    if answer.mark is Mark.FAIL and failed:
        reason = f"{checks} on {listed(failed)}" if margins else f"on {listed(failed)}"
    elif answer.mark in _SHOWS_ITS_LINE:
        reason = answer.line
    elif answer.reservations:
        reason = answer.reservations[0]
    else:
        reason = answer.line if answer.mark is Mark.NOT_ASKED else ""
    short = textwrap.shorten(reason, MOST, placeholder=" …")
    return Tile(answer=answer, name=QUESTION_NAMES[answer.question], number=number, reason=short)


def _claims(answer: Answer) -> str:
    marks, count = [claim.mark for claim in answer.claims], len(answer.claims)
    if not marks:
        return ""
    if answer.mark is Mark.FAIL:
        return f"{marks.count(Mark.FAIL)} of {count} claims failed"
    return f"{sum(mark in (Mark.PASS, Mark.WARN) for mark in marks)} of {count} claims are proven"


def _margins(answer: Answer) -> Iterator[tuple[float, str]]:
    """Yield each number that has a floor or a ceiling: how far it is from it (below 1: beyond it), and its words."""
    for number in (number for claim in answer.claims for number in claim.numbers):
        value, limit = number.value, number.limit
        if is_number(value) and is_number(limit) and value > 0 and limit > 0 and number.rule in _SIDES:
            yield (value / limit if number.rule == "at_least" else limit / value), in_words(number)
