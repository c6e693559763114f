"""All checks of `bringup doctor`: a line each, with a cure where something is to be done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bringup.errors import BringupError
from bringup.run.before.facts import Facts, Finding
from bringup.run.before.host_checks import OF_THE_HOST
from bringup.run.before.slurm_checks import OF_SLURM


class Line(NamedTuple):
    title: str
    finding: Finding


def lines(facts: Facts) -> list[Line]:
    """What needs Slurm is not asked while Slurm does not answer: one line says so for all of it."""
    shown = [Line(title, look(facts)) for title, look in OF_THE_HOST]
    if isinstance(facts.cluster, BringupError):
        unasked = ", ".join(title for title, _ in OF_SLURM)
        cure = f"without it this is not known: {unasked}"
        return [Line("slurm", Finding("INCOMPLETE", str(facts.cluster), cure)), *shown]
    cluster = facts.cluster
    return [*(Line(title, look(facts, cluster)) for title, look in OF_SLURM), *shown]


def exit_code(shown: Sequence[Line]) -> int:
    marks = {line.finding.mark for line in shown}
    return 1 if "FAIL" in marks else 2 if "INCOMPLETE" in marks else 0
