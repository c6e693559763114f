"""The network as Slurm places jobs by it, beside what pairs of nodes measured: no node should be faster with the nodes
under another switch than with those under its own."""

from __future__ import annotations

from collections import defaultdict
from statistics import median, median_high

from bringup.derive.pairs import measured
from bringup.evidence.parsed import Parsed, Seen
from bringup.evidence.slurm import LEAF, LEAVES


def derive(observed: Seen) -> Parsed:
    """Derive nccl.pair.topology, ratio: what the worst node reaches with those under its own leaf switch (or in its
    block), over what it reaches under the switch where it is fastest. Of each switch the middle partner counts, of two
    the better one. Not known where the measured pairs are all under one switch, or none is."""
    parsed, answers = Parsed(), observed.of(LEAVES)
    directions, _ = measured(observed.under("pair.", "nccl."))
    if not answers or not directions:
        return parsed
    leaf = {node: node for pair in directions for node in pair}
    leaf |= {seen.subject: str(seen.value) for seen in observed.of(LEAF)}
    inside = [speed.best for (a, b), speed in directions.items() if leaf[a] == leaf[b]]
    across = [speed.best for (a, b), speed in directions.items() if leaf[a] != leaf[b]]
    gate, evidence = "nccl.pair.topology", answers[0].evidence
    if not inside or not across:
        why = f"of the measured pairs {len(inside)} are under one switch and {len(across)} are not"
        parsed.saw(gate, "job", None, "ratio", evidence, f"{why}; BRINGUP_PAIR_ROUNDS=all measures every pair")
        return parsed
    also = f"the middle of all pairs under one switch: {median(inside):.3g}, of the others: {median(across):.3g}"
    speeds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (a, b), way in directions.items():
        speed = min(way.best, directions.get((b, a), way).best)
        speeds[a][leaf[b]].append(speed)
        speeds[b][leaf[a]].append(speed)
    shares = []
    for node, by_leaf in sorted(speeds.items()):
        middle = {name: median_high(values) for name, values in by_leaf.items()}
        own, best = leaf[node], max(middle, key=lambda name: middle[name])
        if own in middle and middle[best] > 0:
            share = middle[own] / middle[best]
            words = f"{node} with those under {own}: {middle[own]:.3g} GB/s, under {best}: {middle[best]:.3g} GB/s"
            shares.append((share, words))
    if not shares:  # no pair carried a byte: there is nothing to compare
        return parsed
    share, words = min(shares)
    parsed.saw(gate, "job", round(share, 4), "ratio", evidence, f"{words}; {also}")
    return parsed
