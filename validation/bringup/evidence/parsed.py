"""What a parser returns: observations, and in words what it could not read. Never an empty list in silence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeGuard

from bringup.records import Observation, Value


@dataclass
class Parsed:
    observations: list[Observation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def saw(
        self, quantity: str, subject: str, value: Value | None, unit: str, evidence: str, why: str | None = None
    ) -> None:
        self.observations.append(
            Observation(quantity=quantity, subject=subject, value=value, unit=unit, evidence=evidence, why=why)
        )

    def whole_lines(self, text: str, where: str) -> list[str]:
        """The lines that a tool wrote to the end. A last line without its line feed was cut off, and is a problem."""
        *whole, rest = lines(text)
        if rest:
            self.problems.append(f"{where}:{len(whole) + 1}: cut off: {rest[-60:]!r}")
        return whole

    def add(self, other: Parsed) -> None:
        self.observations += other.observations
        self.problems += other.problems


class Seen:
    """Observations by quantity. Read only: what follows from them is returned by a derivation, never written back."""

    def __init__(self, observations: Iterable[Observation]) -> None:
        self._by_quantity: dict[str, list[Observation]] = {}
        for observation in observations:
            self._by_quantity.setdefault(observation.quantity, []).append(observation)

    def of(self, quantity: str) -> list[Observation]:
        """Empty when nothing was seen of it."""
        return self._by_quantity.get(quantity, [])

    def by_subject(self, quantity: str) -> dict[str, list[Observation]]:
        found: dict[str, list[Observation]] = {}
        for observation in self.of(quantity):
            found.setdefault(observation.subject, []).append(observation)
        return found

    def starting_with(self, prefix: str) -> dict[str, list[Observation]]:
        """Quantity -> observations."""
        return {quantity: seen for quantity, seen in self._by_quantity.items() if quantity.startswith(prefix)}

    def under(self, *prefixes: str) -> list[Observation]:
        """Of all quantities that start with one of them."""
        return [one for quantity, seen in self._by_quantity.items() if quantity.startswith(prefixes) for one in seen]


def lines(text: str) -> list[str]:
    """Lines as `grep -n` counts them: a line feed ends one. The carriage return of a progress bar does not."""
    return text.split("\n")


def numbers(observations: list[Observation]) -> dict[str, float]:
    """Subject -> value, of the observations that are numbers."""
    return {
        observation.subject: float(observation.value) for observation in observations if is_number(observation.value)
    }


def is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)
