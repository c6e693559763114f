"""What the drills found."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from bringup.records.base import NonNegative, Outcome, Record, Versioned


class DrillResult(Record):
    """A fault that was made on purpose, and what the judge said about it. null: not performed, and `why` says why."""

    drill: str
    fault: str
    phase: str
    gate: str  # that must say so
    subject: str
    outcome: Outcome  # that it must give
    performed: bool
    applicable: bool = True  # false: it would mean nothing on this cluster
    why: str | None = None
    detected: bool | None = None  # the gate gave that outcome on some subject, and the screen said so
    right_subject: bool | None = None  # on the declared subjects, and on no other
    right_cause: bool | None = None  # with the declared words
    observed: str | None = None  # as the verdict says it
    seconds_to_detect: NonNegative | None = None  # from the fault in place to the verdict
    seconds: NonNegative  # all of it: making it, undoing it, waiting until the cluster is well
    false_alarms: list[str] = Field(default_factory=list)  # verdicts that failed and that this fault does not explain
    evidence: str | None = None  # folder of the run, beside drill.json

    @model_validator(mode="after")
    def _whole_or_why(self) -> DrillResult:
        is_whole = None not in (self.detected, self.right_subject, self.right_cause, self.seconds_to_detect)
        if self.performed is not is_whole or (not self.performed and not self.why):
            raise ValueError(f"drill {self.drill} needs what was seen when performed, and otherwise why it was not")
        return self

    @property
    def is_found(self) -> bool:
        return bool(self.detected and self.right_subject and self.right_cause)


class HealthyRound(Record):
    """Phases on a cluster without a fault. Whatever does not pass is a false alarm."""

    number: int = Field(ge=1)
    verdicts: int = Field(ge=0)
    false_alarms: list[str]
    seconds: NonNegative
    evidence: list[str]


class DrillReport(Versioned):
    """`drill.json`: what `bringup drill` did, rewritten after every drill."""

    name: str
    place: Literal["local-cluster", "anywhere"]
    profile: str | None  # anywhere: of the cluster; on the local cluster each run names its own
    git_commit: str | None
    opened_at: str
    planned: list[str]  # drills
    healthy_planned: int = Field(ge=0)
    healthy_phases: list[str]  # of each healthy round
    healthy_nodes: int = Field(
        default=4, ge=1
    )  # of the cluster of the healthy rounds; before they were recorded: 4 with 2
    healthy_gpus_per_node: int = Field(default=2, ge=1)
    results: list[DrillResult]
    healthy: list[HealthyRound]
