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
from bringup.report.section import Section

WIDTH = 100.0  # of the whole time, in units of a bar
_LEAST = 0.6  # of a bar, so that a short step is seen


@dataclass(frozen=True)
class Row:
    section: Section
    counts: dict[Outcome, int]
    seconds: float | None
    begin: float
    width: float
    wrong: str  # of the first that failed or is open; empty: all passed


@dataclass(frozen=True)
class Timeline:
    rows: list[Row]
    begin: str
    end: str


def timeline(sections: Sequence[Section], judged: Sequence[Judged]) -> Timeline:
    spans = [_span(run, section.seconds) for run, section in zip(judged, sections, strict=True)]
    first = min((begin for begin, _ in spans), default=0.0)
    last = max((end for _, end in spans), default=first)
    unit = WIDTH / ((last - first) or 1.0)
    rows: list[Row] = []
    for section, (begin, end) in zip(sections, spans, strict=True):
        counted = Counter(verdict.outcome for verdict in section.view.verdicts.verdicts)
        bad = section.view.bad
        wrong = first_few([f"{each.subject}: {text.sentence(each)}" for each in bad[:1]], 1, len(bad))
        seconds = section.seconds if section.seconds is not None else end - begin if end > begin else None
        width = max(_LEAST, (end - begin) * unit)
        counts = {outcome: counted[outcome] for outcome in Outcome}
        rows.append(Row(section, counts, seconds, min((begin - first) * unit, WIDTH - width), width, wrong))
    return Timeline(rows, _moment(first), _moment(last))


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
