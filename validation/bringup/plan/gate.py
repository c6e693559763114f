"""What a gate is. It says in code WHAT is checked; where the expected value comes from is one of three sources."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bringup.plan.guide import Guide
from bringup.plan.rules import Rule
from bringup.records import Limit, Outcome

Per = Literal["job", "node", "pair", "link", "rank", "scale", "wide_scale"]
"""What one verdict is about: the whole job, a node, an ordered pair of nodes (n0->n1, in the rounds of the circle), a
link (n0--n1, in the rounds of the tournament), a rank, or a scale: one GPU, then numbers of nodes (wide_scale: those
with more than one rank)."""


@dataclass(frozen=True)
class Fixed:
    """The same on every cluster: zero wrong values, an exit code that arrives."""

    value: Limit


@dataclass(frozen=True)
class Requested:
    """What this run requested, from run.json."""

    field: Literal["gpus_per_node", "world_size", "scale_ranks", "scale_nodes", "strategy"]


@dataclass(frozen=True)
class FromProfile:
    """What the profile expects of this cluster. Undeclared there: incomplete, never a pass."""


@dataclass(frozen=True)
class Fleet:
    """No number: the nodes are compared with each other."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    id: str  # also the quantity of the observation that it judges, and its anchor in docs/
    phases: tuple[str, ...]
    claims: tuple[str, ...] = ()  # of plan/claims.py that it proves
    bears_on: tuple[str, ...] = ()  # claims that a miss of it speaks against, and that a pass of it alone does not ask
    proves: str  # what a pass says, as the end of "it was seen that ..."
    per: Per
    unit: str
    rule: Rule
    expect: Fixed | Requested | FromProfile | Fleet
    guide: Guide  # what to know about it when it does not pass
    needs: tuple[str, ...] = ()  # gates that must pass first: speed is not judged on the wrong rank count
    explained_by: tuple[str, ...] = ()  # gates of nodes: a node that fails one of them explains a miss of this one
    decided_by: tuple[str, ...] = ()  # where nodes differ without a majority: a node that fails one of these is odd
    severity: Outcome = Outcome.FAIL  # WARN: worth a fix, and no reason to stop
    stops: tuple[Outcome, ...] = (
        Outcome.FAIL,
        Outcome.INCOMPLETE,
    )  # phases that need this one would mean nothing after these
    min_nodes: int = 1  # planned only for runs of at least this many nodes
    max_nodes: int | None = None  # of a scale
    min_ranks_per_node: int = 1  # ... and nodes with at least this many GPUs
    shared_nodes: bool = False  # ... and where two jobs may run on one node at the same time

    @property
    def fix(self) -> str:
        """Where docs/ says what to do."""
        return f"docs/{self.guide.page}.md#{self.id}"
