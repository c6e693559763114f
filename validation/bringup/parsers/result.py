"""What a parser returns: observations, and in words what it could not read. Never an empty list in silence."""

from __future__ import annotations

from dataclasses import dataclass, field

from bringup.records import Observation, Value


@dataclass
class Parsed:
    observations: list[Observation] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def saw(self, quantity: str, subject: str, value: Value | None, unit: str, evidence: str, why: str | None = None) -> None:
        self.observations.append(
            Observation(quantity=quantity, subject=subject, value=value, unit=unit, evidence=evidence, why=why))

    def add(self, other: Parsed) -> None:
        self.observations += other.observations
        self.problems += other.problems
