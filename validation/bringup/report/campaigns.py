"""What is made of several runs: a playbook, a sweep, drills."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bringup.kernel.records.base import RUN_NAME, Name, NodeName, NonNegative, Outcome, Record, RunName, Versioned
from bringup.kernel.records.run import Answer, Headline


class Step(Record):
    """One phase of a playbook run."""

    phase: Name
    folder: Name | None  # of its run, from the repository root; null when it did not run
    outcome: Outcome
    blocks: bool  # whether phases that need this one would mean nothing
    why_not_run: str | None = None
    seconds: NonNegative


class LeftOut(Record):
    """A node that later phases of a playbook run do without."""

    node: NodeName
    phase: Name  # that found it unhealthy
    why: str  # gates, with their outcome


class Playbook(Versioned):
    """`playbook.json`: what `bringup run` did, rewritten after every phase."""

    name: RunName
    nodes: list[NodeName]
    profile: Name
    site: Name | None = None  # the name of the site file; null: none was used
    planned: list[Name]  # phases
    left_out: list[str]  # phases that these nodes cannot run, with the reason
    unhealthy_nodes: list[LeftOut] = Field(default_factory=list)  # left out by the phases after the one that names them
    set_aside: list[str] = Field(default_factory=list)  # nodes of the partition that the run did not take, and why
    steps: list[Step]
    answers: list[Answer] = Field(default_factory=list)  # of the six questions; empty until the end
    headline: Headline | None = None  # null until the end


class SweepRun(Record):
    """One job of a sweep."""

    variant: int = Field(ge=0)  # index among the variants
    repetition: int = Field(ge=1)
    folder: str  # from the repository root
    outcome: Outcome
    why: str | None = None  # in one line, where it did not pass


class SweepRow(Record):
    """One variant, over its runs that finished: medians. Null: not known, or none finished."""

    label: str  # base, or field=value
    ran: str | None  # what was observed: ZeRO-2, accumulation 2
    runs: int = Field(ge=0)  # that finished
    tokens_per_s: float | None  # all ranks, steady window
    change: float | None  # of tokens/s against the base; relative
    low: float | None  # bounds of the change; null without repetitions
    high: float | None
    against_base: Literal["faster", "slower", "within noise", "cannot tell"] | None
    efficiency: NonNegative | None = None  # tokens/s of a rank over the base's, where the number of nodes varies
    step_p50_s: float | None
    peak_gib: NonNegative | None  # per rank, the largest: of the device where there is one, else of the host
    peak_of: Literal["device", "host"] | None
    mfu: NonNegative | None
    loss_gap: str | None  # against the base
    outcome: Outcome
    failed: str | None  # why, in one line


class Sweep(Versioned):
    """`sweep.json`: what `bringup sweep` did, rewritten after every run."""

    name: str
    phase: str
    nodes: list[str] = Field(min_length=1)
    profile: str  # by name, or the path of its file
    site: str | None  # the name of the site file; null: none was used
    options: list[str]  # of the base
    vary: dict[str, list[str]]  # field -> values
    grid: bool
    weak: bool = False  # where the number of nodes varies: the global batch grows with it
    repeat: int = Field(ge=1)
    variants: list[dict[str, str]]  # field -> value; the base first
    runs: list[SweepRun]
    rows: list[SweepRow]  # derived from the runs


class DrillResult(Record):
    """A fault that was made on purpose, and what the judge said about it. null: not performed, and `why` says why."""

    drill: RunName
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
    # folder of the run, below that of the drills
    evidence: Annotated[str, Field(pattern=f"^(?:{RUN_NAME}/)*{RUN_NAME}$")] | None = None

    @model_validator(mode="after")
    def _whole_or_why(self) -> DrillResult:
        is_whole = None not in (self.detected, self.right_subject, self.right_cause, self.seconds_to_detect)
        if self.performed is not is_whole or (not self.performed and not self.why):
            raise ValueError(f"drill {self.drill} needs what was seen when performed, and otherwise why it was not")
        return self

    @property
    def is_found(self) -> bool:
        return bool(self.detected and self.right_subject and self.right_cause)


class DrillReport(Versioned):
    """`drill.json`: what `bringup drill` did, rewritten after every drill."""

    name: RunName
    place: Literal["local-cluster", "anywhere"]
    profile: str | None  # anywhere: of the cluster; on the local cluster each run names its own
    git_commit: str | None
    opened_at: str
    planned: list[str]  # drills
    results: list[DrillResult]
