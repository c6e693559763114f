"""The six questions at a glance: a tile each, with the number that is nearest to its limit, or how many claims hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bringup.answers import in_words
from bringup.evidence.names import listed
from bringup.plan import catalogue
from bringup.plan.claims import QUESTION_NAMES
from bringup.records import Answer, Mark, Measured, Outcome, Verdict
from bringup.records.grouped import grouped

MOST = 110  # characters of a reason
WIDTH = 100.0  # of a bar, in its own units
_ROOM = 1.15  # the bar ends behind the larger one of value and limit, so that the mark of the limit is seen
_SHOWS_ITS_LINE = (Mark.FAIL, Mark.INCOMPLETE, Mark.WARN)


@dataclass(frozen=True)
class Bar:
    """value and limit as lengths, 0 to WIDTH."""

    value: float
    limit: float
    sort: str  # floor or ceiling


@dataclass(frozen=True)
class Tile:
    answer: Answer
    name: str
    number: str
    bar: Bar | None
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
    nearest = min(_judged(answer), key=_margin, default=None)
    checks = f"{len(failed)} failed check{'s'[: len(failed) > 1]}" if failed else ""
    if nearest is None or (answer.mark is Mark.FAIL and _margin(nearest) >= 1):  # what failed is no number
        number, bar = checks or _claims(answer), None
    else:
        number, bar = in_words(nearest), _bar(nearest)
    if answer.mark is Mark.FAIL and failed:
        reason = f"on {listed(failed)}" if bar is None else f"{checks} on {listed(failed)}"
    elif answer.mark in _SHOWS_ITS_LINE:
        reason = answer.line
    elif answer.reservations:
        reason = answer.reservations[0]
    else:
        reason = answer.line if answer.mark is Mark.NOT_ASKED else ""
    return Tile(answer=answer, name=QUESTION_NAMES[answer.question], number=number, bar=bar, reason=_in_short(reason))


def _in_short(words: str) -> str:
    return words if len(words) <= MOST else words[:MOST].rpartition(" ")[0] + " …"


def _claims(answer: Answer) -> str:
    marks, count = [claim.mark for claim in answer.claims], len(answer.claims)
    if not marks:
        return ""
    if answer.mark is Mark.FAIL:
        return f"{marks.count(Mark.FAIL)} of {count} claims failed"
    return f"{sum(mark in (Mark.PASS, Mark.WARN) for mark in marks)} of {count} claims are proven"


def _judged(answer: Answer) -> Iterable[Measured]:
    """Numbers with a floor or a ceiling."""
    for claim in answer.claims:
        for number in claim.numbers:
            if number.rule in ("at_least", "at_most") and _size(number.value) > 0 and _size(number.limit) > 0:
                yield number


def _size(value: object) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def _margin(number: Measured) -> float:
    """Below 1: beyond the limit."""
    share = _size(number.value) / _size(number.limit)
    return share if number.rule == "at_least" else 1 / share


def _bar(number: Measured) -> Bar:
    value, limit = _size(number.value), _size(number.limit)
    unit = WIDTH / (max(value, limit) * _ROOM)
    return Bar(value * unit, limit * unit, "floor" if number.rule == "at_least" else "ceiling")
