"""A gate: what is checked, and which source the expected value comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from bringup.plan.drill import Drill, NoDrill
from bringup.plan.guide import Guide
from bringup.plan.rules import Rule
from bringup.records import Limit, Outcome, Record

Per = Literal["job", "node", "pair", "link", "rank", "scale", "wide_scale"]
"""The subject of one verdict: the whole job, a node, an ordered pair of nodes (n0->n1, in the rounds of the circle), a
link (n0--n1, in the rounds of the tournament), a rank, or a scale: one GPU, then numbers of nodes (wide_scale: those
with more than one rank)."""


@dataclass(frozen=True)
class Fixed:
    """A value that is the same on every cluster: zero wrong values, an exit code that arrives."""

    value: Limit


@dataclass(frozen=True)
class Requested:
    """A value that this run requested, from run.json."""

    field: Literal["gpus_per_node", "world_size", "scale_ranks", "scale_nodes", "strategy"]


Source = Literal["profile", "fleet"]
"""profile: the number that the profile declares; if it declares none, the verdict is incomplete, never a pass.
fleet: no number; the nodes are compared with each other."""


class Gate(Record):
    """A check of validation/checks/*.yaml."""

    id: str  # also the quantity of the observation that it judges, and its anchor in docs/
    phases: tuple[str, ...]
    # claims of plan/claims.py that it proves; and those that its failure contradicts, while its pass alone does not
    # test them
    claims: tuple[str, ...] = ()
    bears_on: tuple[str, ...] = ()
    proves: str  # what a pass proves, as the end of "it was seen that ..."
    per: Per
    unit: str
    rule: Rule
    expect: Fixed | Requested | Source
    guide: Guide  # help for a verdict that is not a pass
    needs: tuple[str, ...] = ()  # gates that must pass first: speed is not judged on the wrong rank count
    explained_by: tuple[str, ...] = ()  # gates of nodes: a node that fails one of them explains a failure of this one
    # if nodes differ without a majority, a node that fails one of these is the odd one
    decided_by: tuple[str, ...] = ()
    severity: Outcome = Outcome.FAIL  # WARN: worth a fix, but the run goes on
    # after these outcomes, phases that need this one do not run
    stops: tuple[Outcome, ...] = (Outcome.FAIL, Outcome.INCOMPLETE)
    command: str | None = None  # of a site's own check: bash that each node runs (plan/own.py)
    min_nodes: int = 1  # planned only for runs of at least this many nodes
    max_nodes: int | None = None  # of a scale
    min_ranks_per_node: int = 1  # ... and nodes with at least this many GPUs
    shared_nodes: bool = False  # ... and where two jobs may run on one node at the same time
    drills: dict[str, Drill] = Field(default_factory=dict)  # faults that make it fail
    no_drill: NoDrill | None = None

    @property
    def fix(self) -> str:
        """The place in docs/ that says what to do."""
        return self.guide.page if self.command else f"docs/{self.guide.page}.md#{self.id}"
