"""What a report says of the trainings among its runs. The chapters are loaded where there is one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

from bringup.kernel.judge import Judged
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Record, known

if TYPE_CHECKING:
    from bringup.training.comparison.sidebyside import SideBySide


class Layout(Record):
    """What the report shows: known/training_report.yaml."""

    chapters: dict[str, dict[str, str | list[str]]]  # chapter -> line -> sources
    not_on_a_cpu: list[str]
    confirmed: list[str]
    when: dict[str, str]


@cache
def layout() -> Layout:
    return known("training_report", Layout)


@dataclass(frozen=True)
class Chapter:
    """Lines with a value for each run, then sentences about all of them."""

    title: str
    lines: list[tuple[str, list[str]]] = field(default_factory=list)
    sentences: list[str] = field(default_factory=list)
    header: tuple[str, str] = ("what", "value")

    @property
    def alike(self) -> list[tuple[str, str]]:
        """Return lines that say the same of all runs."""
        return [(name, values[0]) for name, values in self.lines if len(set(values)) == 1]


class Report(NamedTuple):
    """Names of the runs, which are those of the values of each line. No chapter: no training finished. compared: None
    where nothing can be; the note says why, or what the columns mean."""

    names: list[str]
    chapters: list[Chapter]
    compared: SideBySide | None
    note: str

    @property
    def columns(self) -> tuple[list[str], list[list[str]]]:
        """Return a column per run, as `bringup compare` shows them: the head, and the lines in which they differ."""
        head, lines = ([], []) if self.compared is None else self.compared.columns
        return head, [line for line in lines if len(set(line[1:])) > 1]


def report(judged: Sequence[Judged], beside: Sequence[Judged] = (), varied: Sequence[str] = ()) -> Report:
    """Report on the trainings among `judged`, as chapters.report does."""
    if not any(PHASES[each.run.phase].is_training for each in judged):
        return Report([], [], None, "")
    from bringup.report.training import chapters

    return chapters.report(judged, beside, varied)
