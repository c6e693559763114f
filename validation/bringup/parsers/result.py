"""What a parser returns: observations, and in words what it could not read. Never an empty list in silence."""

from __future__ import annotations

from dataclasses import dataclass, field

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
        """The lines that a tool wrote to the end. A last one without its line feed was cut off (30 of 300), and is a problem."""
        *whole, rest = text.split("\n")
        if rest:
            self.problems.append(f"{where}:{len(whole) + 1}: cut off: {rest[-60:]!r}")
        return whole

    def add(self, other: Parsed) -> None:
        self.observations += other.observations
        self.problems += other.problems
