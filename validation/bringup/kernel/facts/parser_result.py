"""A parser's result: observations, and a problem in words for everything that it could not read."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeGuard

from bringup.kernel.records import Observation, Value, grouped

MOST_CHARACTERS = 2000  # of a line of a log
_BEGINNING = 1500
_LONG = re.compile(rf"(?<![^\n])[^\n]{{{MOST_CHARACTERS + 1},}}")


@dataclass
class Parsed:
    observations: list[Observation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def saw(
        self, quantity: str, subject: str, value: Value | None, unit: str, evidence: str, why: str | None = None
    ) -> Parsed:
        seen = Observation(quantity=quantity, subject=subject, value=value, unit=unit, evidence=evidence, why=why)
        self.observations.append(seen)
        return self

    def note(self, problem: str) -> Parsed:
        self.problems.append(problem)
        return self

    def whole_lines(self, text: str, where: str) -> list[str]:
        """Return lines that a tool wrote to the end. A last line without its line feed was cut off: a problem."""
        *complete, last = lines(text)
        if last:
            self.note(f"{where}:{len(complete) + 1}: cut off: {last[-60:]!r}")
        return complete

    def add(self, other: Parsed) -> Parsed:
        self.observations += other.observations
        self.problems += other.problems
        return self


class Seen:
    """Observations by quantity. Read only: a derivation returns its results and never writes them back."""

    def __init__(self, observations: Iterable[Observation], beside: Seen | None = None) -> None:
        """beside: what was seen before."""
        self._by_quantity = defaultdict[str, list[Observation]](list)
        for name, several in () if beside is None else beside._by_quantity.items():
            self._by_quantity[name] = list(several)
        for observation in observations:
            self._by_quantity[observation.quantity].append(observation)

    def of(self, quantity: str, step: str | None = None) -> list[Observation]:
        """Return the observations of all steps, or of one. Empty if it was not observed."""
        observations = self._by_quantity.get(quantity, [])
        return observations if step is None else [seen for seen in observations if seen.step == step]

    def by_subject(self, quantity: str) -> dict[str, list[Observation]]:
        return grouped((seen.subject, seen) for seen in self._by_quantity.get(quantity, ()))

    def starting_with(self, prefix: str) -> dict[str, list[Observation]]:
        """Return quantity -> observations."""
        return {quantity: several for quantity, several in self._by_quantity.items() if quantity.startswith(prefix)}

    def under(self, *prefixes: str) -> list[Observation]:
        """Return observations of all quantities that start with one of the prefixes."""
        return [seen for name, several in self._by_quantity.items() if name.startswith(prefixes) for seen in several]


def lines(text: str) -> list[str]:
    """Split lines as `grep -n` counts them: at a line feed, not at the carriage return of a progress bar."""
    return text.split("\n")


def each_line(text: str) -> Iterator[str]:
    """Yield as `lines`, a megabyte at a time: a file of millions of short lines takes no more memory than its text."""
    begin = 0
    while (end := text.find("\n", begin + 2**20)) >= 0:
        yield from lines(text[begin:end])
        begin = end + 1
    yield from lines(text[begin:])


def shortened(text: str) -> str:
    """Return the text of a log with each long line cut."""
    return _LONG.sub(lambda line: cut(line[0]), text)


def cut(line: str) -> str:
    """Return a line of a log, short enough for every pattern. A long one keeps its beginning and its end: srun's label,
    and the last words behind a progress bar."""
    return line if len(line) <= MOST_CHARACTERS else f"{line[:_BEGINNING]} … {line[_BEGINNING - MOST_CHARACTERS :]}"


def numbers(observations: list[Observation]) -> dict[str, float]:
    """Return subject -> value, for observations that are numbers."""
    return {seen.subject: float(seen.value) for seen in observations if is_number(seen.value)}


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
