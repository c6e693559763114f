"""Gates of single nodes and links, from pairs of nodes. Data only."""

from __future__ import annotations

from bringup.checks.nccl import guides
from bringup.plan.gate import FromProfile, Gate, Per
from bringup.plan.rules import Rule
from bringup.records import Outcome


def _pair(
    name: str,
    per: Per,
    proves: str,
    unit: str = "ratio",
    rule: Rule = "at_least",
    severity: Outcome = Outcome.FAIL,
    explained_by: tuple[str, ...] = (),
) -> Gate:
    """A gate of nodes. With two nodes there is one link, and its slower end is unknown: a node needs two partners."""
    return Gate(
        id=f"nccl.pair.{name}",
        phases=("nccl_pairwise",),
        claims=("no-slow-link",),
        per=per,
        min_nodes=3 if per == "node" else 1,
        proves=proves,
        unit=unit,
        rule=rule,
        expect=FromProfile(),
        severity=severity,
        explained_by=explained_by,
        guide=guides.PAIRS,
    )


GATES: tuple[Gate, ...] = (
    _pair("link", "link", "the link is as fast, in both directions, as its two nodes are elsewhere"),
    _pair(
        "link.steady",
        "link",
        "the link was about as fast each time it was measured, in both directions",
        severity=Outcome.WARN,
    ),
    _pair(
        "link.latency",
        "link",
        "round trips on the link take no longer than its nodes' usual ones (95 of 100)",
        "us",
        "at_most",
    ),
    _pair("node", "node", "the node sends and receives as fast as the others, with most of its partners"),
    _pair("node.latency", "node", "round trips to most of the node's partners are short (95 of 100)", "us", "at_most"),
    _pair(
        "slowest",
        "job",
        "even the slowest direction between two nodes reaches the expected bandwidth",
        "GB/s",
        explained_by=("nccl.pair.node",),
    ),
)
