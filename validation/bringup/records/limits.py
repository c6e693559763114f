"""`limits.json`: how small a fault is found, counted over repeated trials."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bringup.records.base import NonNegative, Record, Versioned


class LimitTrial(Record):
    """One run of a phase. size null: without the fault."""

    size: float | None
    found: bool | None  # the gate named the subject and no other; without the fault: it named anything. null: no run
    alarms: list[str]  # what else was accused, or why there was no run
    seconds: NonNegative
    load: NonNegative  # runnable processes of this machine when the trial began (1 minute)


class FaultLimit(Record):
    """One fault in several sizes. Rates come from `trials` alone: `searched` chose their sizes."""

    drill: str
    fault: str  # {size} stands for its size
    unit: str
    sizes: list[float] = Field(min_length=2)  # from the largest fault to the smallest
    phase: str
    gate: str
    subject: str
    nodes: int = Field(ge=1)
    searched: list[LimitTrial] = Field(default_factory=list)
    trials: list[LimitTrial] = Field(default_factory=list)


class LimitsReport(Versioned):
    """`limits.json`: what `bringup drill --limits` did, rewritten after every trial."""

    name: str
    place: Literal["local-cluster", "anywhere"]
    profile: str | None  # anywhere: of the cluster
    cluster: str | None  # anywhere: as Slurm calls it
    cores: int = Field(ge=1)  # of the machine on which the command ran; of all nodes on a local cluster
    git_commit: str | None
    opened_at: str
    repeat: int = Field(ge=1)
    faults: list[FaultLimit]
    ended: bool = False  # false: the last of its faults was not tried to the end

    @property
    def whole(self) -> list[FaultLimit]:
        """The faults that were tried to the end."""
        return self.faults if self.ended else self.faults[:-1]
