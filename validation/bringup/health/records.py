"""The baseline that the health check of a node reads."""

from pydantic import Field

from bringup.kernel.records.base import Limit, Record, Versioned
from bringup.kernel.records.run import Action


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
