"""A run: its plan, its end, what was seen, how it was judged; and what was answered."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec
from pydantic import Field

from bringup.kernel.records.base import (
    MOST_GPUS,
    MOST_NODES,
    Limit,
    Moment,
    Name,
    NodeName,
    OfMany,
    Outcome,
    Record,
    RunName,
    StrEnum,
    Value,
    Versioned,
)


class NotApplicable(Record):
    """A gate that this profile declares meaningless here. The report prints it: a skip is never silent."""

    gate: Name
    reason: str = Field(min_length=1)


class SlurmCluster(NamedTuple):
    """What tells a cluster from another one: many are called `cluster`, so that its controllers count, too."""

    name: str | None
    controller: str | None  # its hosts, with commas between them

    def __str__(self) -> str:
        return f"{self.name or 'a cluster without a name'} at {self.controller or 'a controller that is not known'}"

    def is_another(self, other: SlurmCluster) -> bool:
        """Say whether they are known to be two: not where one of them does not say what it is."""
        return any(None not in pair and len(set(pair)) > 1 for pair in zip(self, other, strict=True))


class SiteUsed(Record):
    """The site file that a run was opened with, and where the run was another one than it says."""

    name: str
    says: dict[str, bool | str | list[str] | dict[str, str | list[str]]]  # the file: key -> value
    # key or variable -> what held in its place: Slurm's word about the job, or the environment of the user
    otherwise: dict[str, str] = Field(default_factory=dict)


class Run(Versioned):
    """`run.json`, written before anything runs: what will be judged, from what was REQUESTED."""

    phase: Name
    name: RunName
    nodes: list[NodeName] = Field(min_length=1, max_length=MOST_NODES)
    gpus_per_node: int = Field(ge=1, le=MOST_GPUS)
    ranks_per_node: int = Field(ge=1, le=MOST_GPUS)
    profile: Name
    profile_sha256: Name  # of profile.yaml beside it
    planned: dict[Name, list[Name]]  # gate -> subjects
    not_applicable: list[NotApplicable]
    argv: list[str]
    git_commit: Annotated[str, Field(pattern="^[0-9a-f]{1,64}$")] | None
    git_dirty: bool | None
    slurm_job_id: Annotated[str, Field(pattern=r"^\d{1,20}$")] | None
    slurm_restart_count: int = Field(ge=0)
    opened_at: Moment
    # the nodes that its steps ran on, in Slurm's order; null: all of `nodes`
    allocated: Annotated[list[NodeName], Field(max_length=MOST_NODES)] | None = None
    # by a setting of the partition, or for want of hardware, whatever the profile declares
    left_out: list[NotApplicable] = Field(default_factory=list)
    site: SiteUsed | None = None  # null: no site file was used
    cluster: Name | None = None  # as Slurm calls it; null: Slurm did not say
    controller: Name | None = None  # hosts of its slurmctld, with commas between them; null: Slurm did not say
    continues: RunName | None = None  # the folder beside this one in which the same job began, before Slurm requeued it

    @property
    def of_cluster(self) -> SlurmCluster:
        return SlurmCluster(self.cluster, self.controller)

    @property
    def ran_on(self) -> list[str]:
        """Return the nodes that its steps ran on, in Slurm's order."""
        return self.nodes if self.allocated is None else self.allocated


class Closed(Versioned):
    """`closed.json`: the phase script ended. Without it (SIGKILL, lost node, time limit) the run is incomplete."""

    exit_code: int
    closed_at: Moment
    files: dict[str, str]  # SHA-256 of all that is evidence then


class Continued(Versioned):
    """`continued.json`, in the folder of an attempt that Slurm requeued: where the job went on."""

    run: RunName


class _OfSubject:
    """How a subject is written: the node, and behind a slash one of its devices or ranks."""

    __slots__ = ()
    subject: str

    @property
    def node(self) -> str:
        """Return n0 of the fact of a device, n0/gpu1; else the subject."""
        return self.subject.partition("/")[0]

    @property
    def device(self) -> str:
        """Return gpu1 of n0/gpu1. Empty: it is of the subject as a whole, and not of one of its devices or ranks."""
        return self.subject.partition("/")[2]


class Observation(_OfSubject, OfMany, frozen=True, kw_only=True):
    """One thing seen. `value` null means that it was looked for and is not known: `why` says why. With a value, `why`
    is a remark."""

    quantity: str  # discovery.gpu.count
    subject: str  # job, n0, n0/gpu1, n0/rank1, n0->n1
    value: Value | None
    unit: str
    evidence: str  # raw/inventory.out:12
    why: str | None = None
    step: str = ""  # the step that it is from, where its facts have to be told from those of other steps: collectives-2
    round: int | None = None  # of pairs


class Observations(Versioned):
    """`observations.json`, derived from raw/."""

    observations: list[Observation]
    problems: list[str]  # raw files that could not be read as what they should be


class Action(StrEnum):
    """What usually helps first when a gate did not pass, from the least to the most that it costs."""

    WATCH = "watch"  # nothing is taken out of service for it: look again
    CONFIGURE = "configure"  # a setting, a mount, a file, a package
    RESET = "reset"  # the GPU, its driver, or the fabric manager
    REBOOT = "reboot"
    INSPECT = "inspect"  # hands on the machine: reseat a cable, a module or a card; look at cooling and power
    REPLACE = "replace"  # the device itself said that it cannot be repaired; all else is replaced if it comes back


class Kind(StrEnum):
    """How a verdict came about."""

    JUDGED = "judged"  # a value was compared with a limit
    ABSENT = "absent"  # no evidence arrived
    UNKNOWN = "unknown"  # evidence arrived, and says that it could not be found out, or cannot be compared
    BLOCKED = "blocked"  # a gate that has to pass first did not
    UNDECLARED = "undeclared"  # the profile has no limit for it


class Verdict(_OfSubject, OfMany, frozen=True, kw_only=True):
    """One planned (gate, subject) pair, judged. `observed`, `expected` and `fails` are words made from the other
    fields."""

    gate: str
    subject: str
    outcome: Outcome
    kind: Kind
    value: Value | None  # null: nothing was found out
    unit: str
    rule: str
    limit: Limit | None  # null: none was declared, or the nodes were compared with each other
    at: str | None = None  # the size of a message that value and limit hold for: 16MiB
    basis: str | None = None  # how the limit follows from the number of nodes, where it does
    blocked_by: list[str] = msgspec.field(default_factory=list)  # gates
    observed: str  # "nothing" when nothing was found out
    expected: str
    fails: str | None = None  # what is wrong, without subject and cause; null: it passed, or was not judged
    evidence: str
    cause: str | None = None  # why it did not pass, as far as the evidence says
    fix: str  # the section of docs/ that says what to do
    action: Action | None = None  # what usually helps; null: the gate passed, or is open


class Sign(Record):
    """A line in a log that matches a known fault. It decides nothing; it says where to look."""

    signature: str  # its id in validation/known_faults/*.yaml
    evidence: str  # raw/launch.log:6, its first line
    line: str
    count: int = Field(ge=1)


class Verdicts(Versioned):
    """`verdicts.json`, derived: safe to delete and rebuild."""

    phase: str
    run: str
    profile: str  # that it was judged against
    recognised: str | None = None  # of the profile `auto`: what its numbers are of
    outcome: Outcome
    verdicts: list[Verdict]
    not_applicable: list[NotApplicable]
    notes: list[str]
    signs: list[Sign] = Field(default_factory=list)


class Mark(StrEnum):
    """What became of a statement or a question."""

    PASS = "pass"  # noqa: S105
    WARN = "warn"
    NOT_PROVEN = "rehearsed"  # it held, on placeholders: GPUs that are none, gloo, TCP
    PARTLY = "partly"  # what was asked held; not all was asked
    NOT_ASKED = "not asked"
    INCOMPLETE = "incomplete"
    FAIL = "fail"

    @property
    def word(self) -> str:
        """Return what people read; records keep the value."""
        return "not proven" if self is Mark.NOT_PROVEN else self.value


class Measured(Record):
    """One number of an answer: of the widest scale, and of several subjects the one nearest to its limit."""

    name: str  # all_reduce
    value: Value
    unit: str
    rule: str  # at_least: the limit is a floor; at_most: a ceiling
    limit: Limit | None
    at: str | None  # a size
    subject: str


class ClaimAnswer(Record):
    """One claim (kernel/plan/claims.py), with its numbers and its scope."""

    claim: str
    says: str
    mark: Mark
    numbers: list[Measured]
    verdicts: int = Field(ge=0)
    nodes: list[str]  # that took part
    gpus_per_node: int = Field(ge=0)
    why: str | None  # it is not simply proven
    not_real: list[str] = Field(default_factory=list)  # GPU, NCCL, fabric: for which a placeholder was there
    is_simulated: bool = False  # a simulated GPU took part, so that nothing of it is from real hardware
    not_on: list[Name] = Field(default_factory=list)  # nodes that were excluded as unhealthy
    is_without_limit: bool = False  # nothing is open but that numbers have no limit


class Answer(Record):
    """One of the six questions."""

    question: int = Field(ge=1, le=6)
    mark: Mark
    line: str  # number and scope; of what failed or is open, which
    reservations: list[str]  # what the line does not say: what is not proven, or was not asked
    claims: list[ClaimAnswer]


class Decision(StrEnum):
    ACCEPT = "accept"
    EXCEPT = "accept, except"
    REFUSE = "do not accept"
    OPEN = "cannot tell yet"


class Headline(Record):
    """The overall word of a report: never better than its answers."""

    mark: Mark
    says: str  # why it is not simply a pass; empty where it is
    decision: Decision
    because: str  # what stands against it, or what is missing and how long that takes

    @property
    def word(self) -> str:
        return self.mark.word.upper()
