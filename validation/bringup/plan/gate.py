"""A gate: what is checked, and which source the expected value comes from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from bringup.plan.guide import Guide
from bringup.plan.rules import Rule
from bringup.records import Limit, Outcome

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


@dataclass(frozen=True)
class FromProfile:
    """The number that the profile declares. If it declares none: incomplete, never a pass."""


@dataclass(frozen=True)
class Fleet:
    """No number: the nodes are compared with each other."""


@dataclass(frozen=True, kw_only=True)
class Gate:
    id: str  # also the quantity of the observation that it judges, and its anchor in docs/
    phases: tuple[str, ...]
    claims: tuple[str, ...] = ()  # of plan/claims.py that it proves
    bears_on: tuple[str, ...] = ()  # claims that its failure contradicts; its pass alone does not test them
    proves: str  # what a pass proves, as the end of "it was seen that ..."
    per: Per
    unit: str
    rule: Rule
    expect: Fixed | Requested | FromProfile | Fleet
    guide: Guide  # help for a verdict that is not a pass
    needs: tuple[str, ...] = ()  # gates that must pass first: speed is not judged on the wrong rank count
    explained_by: tuple[str, ...] = ()  # gates of nodes: a node that fails one of them explains a failure of this one
    decided_by: tuple[
        str, ...
    ] = ()  # if nodes differ without a majority, a node that fails one of these is the odd one
    severity: Outcome = Outcome.FAIL  # WARN: worth a fix, but the run goes on
    stops: tuple[Outcome, ...] = (
        Outcome.FAIL,
        Outcome.INCOMPLETE,
    )  # after these outcomes, phases that need this one do not run
    min_nodes: int = 1  # planned only for runs of at least this many nodes
    max_nodes: int | None = None  # of a scale
    min_ranks_per_node: int = 1  # ... and nodes with at least this many GPUs
    shared_nodes: bool = False  # ... and where two jobs may run on one node at the same time

    @property
    def fix(self) -> str:
        """The place in docs/ that says what to do."""
        return f"docs/{self.guide.page}.md#{self.id}"
