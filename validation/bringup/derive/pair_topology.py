"""The network as Slurm places jobs by it, beside what pairs of nodes measured: no node should be faster with the nodes
under another switch than with those under its own."""

from __future__ import annotations

from collections import defaultdict
from statistics import median, median_high

from bringup.derive.pairs import measured
from bringup.evidence.parsed import Parsed, Seen
from bringup.evidence.slurm import LEAF, LEAVES


def derive(observed: Seen) -> Parsed:
    """nccl.pair.topology, ratio: what the worst node reaches with those under its own leaf switch (or in its block),
    over what it reaches under the switch where it is fastest. Of each switch the middle partner counts, of two the
    better one. Where no two nodes share a switch, or Slurm knows none, all are under one."""
    parsed, answers = Parsed(), observed.of(LEAVES)
    directions, _ = measured(observed.under("pair.", "nccl."))
    if not answers or not directions:
        return parsed
    leaf = {node: node for pair in directions for node in pair}
    leaf |= {seen.subject: str(seen.value) for seen in observed.of(LEAF)}
    inside = [speed.best for (a, b), speed in directions.items() if leaf[a] == leaf[b]]
    across = [speed.best for (a, b), speed in directions.items() if leaf[a] != leaf[b]]
    if inside and across:
        also = f"the middle of all pairs under one switch: {median(inside):.3g}, of the others: {median(across):.3g}"
    else:
        also = f"switches or blocks that Slurm knows: {answers[0].value}"
        also += "; no two nodes of the run are under the same one" if across and answers[0].value else ""
        leaf = dict.fromkeys(leaf, "all")
    speeds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (a, b), way in directions.items():
        speed = min(way.best, directions.get((b, a), way).best)
        speeds[a][leaf[b]].append(speed)
        speeds[b][leaf[a]].append(speed)
    shares = []
    for node, by_leaf in sorted(speeds.items()):
        middle = {name: median_high(values) for name, values in by_leaf.items()}
        own, best = leaf[node], max(middle, key=lambda name: middle[name])
        if own in middle:
            share = middle[own] / middle[best] if middle[best] > 0 else 1.0
            words = f"{node} with those under {own}: {middle[own]:.3g} GB/s, under {best}: {middle[best]:.3g} GB/s"
            shares.append((share, words))
    share, words = min(shares)
    parsed.saw("nccl.pair.topology", "job", round(share, 4), "ratio", answers[0].evidence, f"{words}; {also}")
    return parsed
