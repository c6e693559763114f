"""After bring-up: what the health check of a node compares with, and what a passed playbook certifies."""

from __future__ import annotations

from pydantic import Field

from bringup.records.base import Limit, Outcome, Record, Versioned
from bringup.records.run import Action, Answer, Mark


class Asked(Record):
    """One question of the health check, and the answer that is right."""

    gate: str
    check: str  # infrastructure-validation/slurm/checks.d/NN-NAME
    quantity: str  # of its facts
    parts: list[str] = Field(default_factory=list)  # of the node, that have to answer each: RDMA ports
    rule: str
    limit: Limit
    unit: str
    action: Action


class Group(Record):
    """Nodes that are alike, because one run passed on all of them."""

    run: str
    opened_at: str
    nodes: list[str] = Field(min_length=1)
    mounts: list[str]  # folders whose mount is asked for
    asked: list[Asked] = Field(min_length=1)


class Baseline(Versioned):
    """`baseline.json`, made of runs of discovery that passed; the health check on each node reads it."""

    groups: list[Group] = Field(min_length=1)
    driver_events: dict[str, str | None]  # xid_79 -> what it asks for; null: nothing
    owner: str  # how each reason of ours begins
    reason: str  # its template
    passes: str  # how it begins when nothing is wrong any more
    asks_for_a_load: str  # how it begins when a fault of the driver is only out of its log
    slurms_own: list[str]  # reasons that Slurm gives when a prolog or an epilog fails
    not_allowed: str  # in a reason: a regular expression
    most: int  # characters of a reason
    date: str  # strftime
    actions: list[str]  # from the least to the most that they cost


class Condition(Record):
    """Something that was so in the runs. When it is otherwise, the certificate no longer holds."""

    what: str
    values: list[str] = Field(min_length=1)


class Machine(Record):
    """A node, and what tells it from another one of the same name. null: not seen."""

    node: str
    hardware: str | None  # SHA-256 of the addresses of its NICs and HCAs, or of its machine id
    gpus: str | None  # SHA-256 of the UUIDs of its GPUs; null also for placeholders, which have none
    boot: str | None  # during which it was certified; a later boot breaks nothing


class Certified(Record):
    """A run that the certificate rests on."""

    phase: str
    name: str
    opened_at: str
    nodes: list[str]
    outcome: Outcome
    counted: str  # 90 pass, 2 warn
    files_sha256: str  # of the checksums of its evidence, as closed.json lists them
    git_commit: str | None
    git_dirty: bool | None


class Certificate(Versioned):
    """`certificate.json`: what was asked of which nodes and passed, what was not asked, and when it stops holding.

    Unsigned, it is worth what its keeper is worth: whoever may write to it can make another one."""

    name: str
    holds_until: str  # a day, UTC
    mark: Mark  # PASS, or what the whole is less than that: PARTLY, REHEARSED
    dated: str  # the end of its runs, UTC
    days: int = Field(ge=1)  # from there to holds_until
    cluster: str | None  # as Slurm calls it
    nodes: list[str]  # that were in every run
    left_out: list[str]
    gpus_per_node: int
    profile: str
    profile_sha256: str
    site: str | None
    site_sha256: str | None
    answers: list[Answer] = Field(min_length=1)
    does_not_say: list[str]
    compared: list[str] = Field(default_factory=list)  # bit by bit, for how long, and what differed
    limits: list[str] = Field(default_factory=list)  # how small a fault was found, where, and at which load
    conditions: list[Condition] = Field(min_length=1)
    machines: list[Machine]
    runs: list[Certified] = Field(min_length=1)
