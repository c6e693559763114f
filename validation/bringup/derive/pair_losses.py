"""What the two nodes of a pair had to send again over their connection -> which node or link loses packets.

A large transfer recovers from a loss at once, so neither its speed nor 95 of 100 round trips show one packet in fifty.
As with speeds, a node is judged by its middle partner, and a link by what is beyond the usual of its two nodes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import combinations
from statistics import median_low

from bringup.evidence.parsed import Parsed
from bringup.plan.rounds import Pair, link_name
from bringup.records import Observation

SENT_AGAIN = "pair.sent_again"
LEAST_PARTNERS = 2  # with one partner, a node that loses packets looks like a link that does


def derive(observations: Iterable[Observation], names: Sequence[str]) -> Parsed:
    """nccl.pair.node.lost, nccl.pair.link.lost: shares of TCP segments. Nothing where none are counted."""
    directions: dict[Pair, tuple[float, str]] = {}  # (from, to) -> the least share of the repeats, its evidence
    for observation in observations:
        if observation.quantity != SENT_AGAIN or not isinstance(observation.value, int | float):
            continue
        source, _, target = observation.subject.partition("->")
        known = directions.get((source, target))
        if known is None or observation.value < known[0]:
            directions[source, target] = (float(observation.value), observation.evidence)
    out, into = _middle(directions, 0), _middle(directions, 1)
    lost = Parsed()
    for node in sorted(out.keys() & into.keys()):
        words = f"of what it sends {out[node]:.2%}, of what its partners send to it {into[node]:.2%} is sent again"
        lost.saw("nccl.pair.node.lost", node, round(max(out[node], into[node]), 5), "ratio", "raw/pairs-*.jsonl", words)
    for pair in combinations(names, 2):
        ways = [way for way in (pair, pair[::-1]) if way in directions]
        if len(ways) == 2:
            # twice: how many packets of a connection are lost at a bad node is a matter of chance
            beyond = {way: directions[way][0] - 2 * max(out.get(way[0], 0.0), into.get(way[1], 0.0)) for way in ways}
            way = max(ways, key=lambda way: beyond[way])
            share, evidence = directions[way]
            words = f"{way[0]}->{way[1]} sends {share:.2%} again"
            value = round(max(0.0, beyond[way]), 5)
            lost.saw("nccl.pair.link.lost", link_name(pair), value, "ratio", evidence, words)
    return lost


def _middle(directions: dict[Pair, tuple[float, str]], end: int) -> dict[str, float]:
    """Node -> the share of its middle partner, as sender (end 0) or receiver (1); of two partners the better one."""
    shares: dict[str, list[float]] = defaultdict(list)
    for pair, (share, _) in directions.items():
        shares[pair[end]].append(share)
    return {node: median_low(values) for node, values in shares.items() if len(values) >= LEAST_PARTNERS}
