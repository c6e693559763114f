"""What `bringup preflight` did in a user's job."""

from typing import Annotated, Literal

from pydantic import Field

from bringup.kernel.records.base import Moment, Name, NonNegative, Record, RunName, Versioned
from bringup.report.campaigns import LeftOut


class PreflightLook(Record):
    """Checks before the first start of the command, or after it ended badly."""

    nodes: list[Name]  # that were asked
    runs: list[Name]  # folders of its phases, from the repository root
    accused: list[LeftOut]
    links: list[tuple[Name, Name]] = Field(default_factory=list)  # slow or dead, and neither of the two nodes is
    remarks: list[str] = Field(default_factory=list)  # what speaks against no single node, and what was not asked
    seconds: NonNegative


class PreflightAttempt(Record):
    """The command, once."""

    nodes: list[Name] = Field(min_length=1)  # in Slurm's order
    spares: list[Name]
    started_at: Moment
    seconds: NonNegative
    how: Literal["ended", "stalled", "running"]
    exit_code: int | None  # 128 + the number of a signal; null: it was ended for a stall
    look: PreflightLook | None = None  # after a bad end
    exchanged: dict[Name, Name] = Field(default_factory=dict)  # culprit -> the spare that takes its place


class Preflight(Versioned):
    """`preflight.json`, rewritten after every step."""

    name: RunName
    job: Annotated[str, Field(pattern=r"^\d{1,20}$")]
    allocated: list[Name] = Field(min_length=1)
    wanted: int = Field(ge=1)  # nodes of the command
    # of the command; its arguments, which may hold secrets, are in command-1.log, which is its owner's alone
    program: str
    profile: Name
    retries: int = Field(ge=0)
    stall_after_s: int | None
    before: PreflightLook | None = None
    attempts: list[PreflightAttempt] = Field(default_factory=list)
    conclusion: str = ""  # in one line; empty until the end
