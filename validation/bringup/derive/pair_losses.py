"""What the two nodes of a pair had to send again over their connection -> which node loses packets.

A large transfer recovers from a loss at once, so neither its speed nor 95 of 100 round trips show one packet in fifty.
As with speeds, a node is judged by its middle partner: one bad link does not blame it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median_low

from bringup.derive.pairs import LEAST_PARTNERS
from bringup.evidence.parsed import Parsed
from bringup.plan.rounds import Pair
from bringup.records import Observation

SENT_AGAIN = "pair.sent_again"


def derive(observations: Iterable[Observation]) -> Parsed:
    """nccl.pair.node.lost: shares of TCP segments. Nothing where none are counted."""
    directions: dict[Pair, float] = {}  # (from, to) -> the least share of the repeats
    for observation in observations:
        if isinstance(observation.value, int | float):
            source, _, target = observation.subject.partition("->")
            directions[source, target] = min(float(observation.value), directions.get((source, target), 1.0))
    out, into = _middle(directions, 0), _middle(directions, 1)
    lost = Parsed()
    for node in sorted(out.keys() & into.keys()):
        words = f"of what it sends {out[node]:.2%}, of what its partners send to it {into[node]:.2%} is sent again"
        lost.saw("nccl.pair.node.lost", node, round(max(out[node], into[node]), 5), "ratio", "raw/pairs-*.jsonl", words)
    return lost


def _middle(directions: dict[Pair, float], end: int) -> dict[str, float]:
    """Node -> the share of its middle partner, as sender (end 0) or receiver (1); of two partners the better one."""
    shares: dict[str, list[float]] = defaultdict(list)
    for pair, share in directions.items():
        shares[pair[end]].append(share)
    return {node: median_low(values) for node, values in shares.items() if len(values) >= LEAST_PARTNERS}
