"""The steps as one table, each with its place in the time of the whole run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from bringup.derive.provenance import CLOSED_AT, CLOSED_AT_IN
from bringup.evidence.names import first_few
from bringup.judge import Judged
from bringup.records import Outcome, time_of
from bringup.report import text
from bringup.report.moments import Moment, moments
from bringup.report.section import Section

WIDTH = 100.0  # of the whole time, in units of a bar
_LEAST = 0.6  # of a bar, so that a short step is seen
_APART = 7.0  # two marks that are closer are one
MOST_SAID = 8  # moments of one mark


@dataclass(frozen=True)
class Mark:
    """Moments that lie beside each other in one step."""

    number: int
    place: float
    step: str
    moments: list[Moment]

    @property
    def lines(self) -> list[str]:
        hidden = len(self.moments) - MOST_SAID
        rest = [f"and {hidden} more, in the step"] if hidden > 0 else []
        return [moment.words for moment in self.moments[:MOST_SAID]] + rest


@dataclass(frozen=True)
class Row:
    section: Section
    counts: dict[Outcome, int]
    seconds: float | None
    begin: float
    width: float
    wrong: str  # of the first that failed or is open; empty: all passed
    marks: list[Mark]

    @property
    def clock(self) -> str:
        return self.section.view.run.opened_at[11:16]


@dataclass(frozen=True)
class Timeline:
    rows: list[Row]
    begin: str
    end: str
    untimed: int  # failures without a time in their evidence

    @property
    def marks(self) -> list[Mark]:
        return [mark for row in self.rows for mark in row.marks]


def timeline(sections: Sequence[Section], judged: Sequence[Judged]) -> Timeline:
    spans = [_span(run, section.seconds) for run, section in zip(judged, sections, strict=True)]
    first = min((begin for begin, _ in spans), default=0.0)
    last = max((end for _, end in spans), default=first)
    unit = WIDTH / ((last - first) or 1.0)
    rows: list[Row] = []
    numbered = untimed = 0
    for section, run, (begin, end) in zip(sections, judged, spans, strict=True):
        known, without = moments(run, begin, end)
        placed = [(min(max((moment.unix - first) * unit, 0.0), WIDTH), moment) for moment in known]
        marks = _marks(placed, section.view.title, numbered)
        numbered, untimed = numbered + len(marks), untimed + without
        counted = Counter(verdict.outcome for verdict in section.view.verdicts.verdicts)
        bad = section.view.bad
        wrong = first_few([f"{each.subject}: {text.sentence(each)}" for each in bad[:1]], 1, len(bad))
        width = max(_LEAST, (end - begin) * unit)
        rows.append(
            Row(
                section,
                {outcome: counted[outcome] for outcome in Outcome},
                section.seconds if section.seconds is not None else end - begin if end > begin else None,
                min((begin - first) * unit, WIDTH - width),
                width,
                wrong,
                marks,
            )
        )
    return Timeline(rows, _moment(first), _moment(last), untimed)


def _marks(placed: Sequence[tuple[float, Moment]], step: str, before: int) -> list[Mark]:
    marks: list[Mark] = []
    for place, moment in placed:
        if marks and place - marks[-1].place < _APART:
            marks[-1].moments.append(moment)
        else:
            marks.append(Mark(before + len(marks) + 1, place, step, [moment]))
    return marks


def _span(judged: Judged, seconds: float | None) -> tuple[float, float]:
    """Unix s. A run that was not closed ends, as far as is known, after the seconds that its playbook waited for it."""
    begin = time_of(judged.run.opened_at).timestamp()
    closed = next(  # the record's, which is a moment: a fact of that name may be any text
        (seen.value for seen in judged.observations if (seen.quantity, seen.evidence) == (CLOSED_AT, CLOSED_AT_IN)),
        None,
    )
    if closed is None:
        return begin, begin + (seconds or 0.0)
    return begin, max(begin, time_of(str(closed)).timestamp())


def _moment(unix: float) -> str:
    return datetime.fromtimestamp(unix, tz=timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
