"""A run on the page: what failed, what was proven, its figures, and its place in the time of all steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cached_property

from bringup.derive.provenance import CLOSED_AT, CLOSED_AT_IN
from bringup.evidence.names import first_few
from bringup.judge import Judged
from bringup.records import Outcome, time_of
from bringup.report import text
from bringup.report.charts import bandwidth, pairs, sampled
from bringup.report.charts import training as charts_of_training
from bringup.report.charts.drawing import Drawing
from bringup.report.links import Links, to_evidence
from bringup.report.training.conclusions import entry_of
from bringup.report.view import View

MAX_BAD = 200  # verdicts of one run in its table; the run's own report.md has them all
WIDTH = 100.0  # of the whole time, in units of a bar
_LEAST = 0.6  # of a bar, so that a short step is seen


@dataclass(frozen=True)
class Section:
    judged: Judged
    anchor: str
    waited_s: float | None  # that a playbook waited for its phase
    links: Links

    @cached_property
    def view(self) -> View:
        return View(self.judged.run, self.judged.verdicts, self.judged.folder, self.judged.observations)

    @cached_property
    def curves(self) -> list[Drawing]:
        """Return bandwidth over size."""
        return bandwidth.draw(self.judged.observations, self.judged.profile)

    @cached_property
    def between(self) -> list[Drawing]:
        """Return bandwidth between nodes."""
        return pairs.draw(self.judged.observations, self.judged.run.nodes, self.judged.verdicts.verdicts)

    @cached_property
    def drawings(self) -> list[Drawing]:
        """Return all other figures."""
        entry = entry_of(self.judged)
        return sampled.draw(self.judged) + ([] if entry is None else charts_of_training.of_ranks(entry))

    @cached_property
    def counts(self) -> dict[Outcome, int]:
        counted = Counter(verdict.outcome for verdict in self.judged.verdicts.verdicts)
        return {outcome: counted[outcome] for outcome in Outcome}

    @property
    def wrong(self) -> str:
        """Say what is wrong first. Empty: all passed."""
        bad = self.view.bad
        return first_few([f"{each.subject}: {text.sentence(each)}" for each in bad[:1]], 1, len(bad))

    @cached_property
    def span(self) -> tuple[float, float]:
        """Return begin and end, Unix s. A run that was not closed ends, as far as is known, after the seconds that its
        playbook waited for it."""
        begin = time_of(self.judged.run.opened_at).timestamp()
        closed = next(  # the record's, which is a moment: a fact of that name may be any text
            (s.value for s in self.judged.observations if (s.quantity, s.evidence) == (CLOSED_AT, CLOSED_AT_IN)), None
        )
        if closed is None:
            return begin, begin + (self.waited_s or 0.0)
        return begin, max(begin, time_of(str(closed)).timestamp())

    @property
    def seconds(self) -> float | None:
        begin, end = self.span
        return self.waited_s if self.waited_s is not None else end - begin if end > begin else None

    @property
    def link(self) -> str | None:
        """Return the address of its folder."""
        return self.links(self.view.folder) if self.view.folder.is_dir() else None

    def address(self, evidence: str) -> str | None:
        return to_evidence(self.links, self.view.folder, evidence)


@dataclass(frozen=True)
class Timeline:
    """The steps in the time of the whole run: each with begin and width of its bar."""

    steps: list[tuple[Section, float, float]]
    begin: str
    end: str


def timeline(sections: Sequence[Section]) -> Timeline:
    first = min((section.span[0] for section in sections), default=0.0)
    last = max((section.span[1] for section in sections), default=first)
    unit = WIDTH / ((last - first) or 1.0)
    steps = []
    for section in sections:
        begin, end = section.span
        width = max(_LEAST, (end - begin) * unit)
        steps.append((section, min((begin - first) * unit, WIDTH - width), width))
    begin_of_all, end_of_all = (
        datetime.fromtimestamp(moment, tz=timezone.utc).strftime("%Y-%m-%d %H:%M UTC") for moment in (first, last)
    )
    return Timeline(steps, begin_of_all, end_of_all)
