"""The two ways of this project to say which node or link is slow, on the same simulated clusters.

    python validation/benchmarks/two_localisers.py                # 4 to 64 nodes, 100 clusters a cell; some minutes
    python validation/benchmarks/two_localisers.py 16 --trials 500

*Floors*: bringup.derive.pairs scores each node and each link, and the floors of the profile `generic` accuse. *Spread*:
bringup.derive.localise accuses by the spread of the run, and next_round chooses which pairs are measured. Up to 8 nodes
all pairs are measured, and both read the same numbers. Above, Spread has its own rounds. Floors is asked twice: about
those rounds, and about as many rounds that are known in advance. Simulated as in localise_pairs.py, one number for both
directions of a pair. A cell: of the slow ones how many were missed (%), and how many others were named per 100 runs.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bringup.derive import pairs as scores
from bringup.derive.localise import culprits
from bringup.derive.next_round import next_round
from bringup.plan import profile
from bringup.plan.rounds import ALL_PAIRS, Pair, all_rounds, rounds

SIZES = (4, 8, 16, 32, 64)
LOSSES = (0.1, 0.3, 0.6)
NOISES = (0.01, 0.05)
REPEATS, USUAL = 2, 400.0  # BRINGUP_PAIR_REPEATS; GB/s
EXPECT = profile.load("generic").expect
NODE_FLOOR, LINK_FLOOR = (float(str(EXPECT[gate].at_least)) for gate in ("nccl.pair.node", "nccl.pair.link"))

Slow = frozenset[str]  # a node, the two ends of a path, or the nodes behind a slow way out
Speeds = Mapping[Pair, float]


@dataclass(frozen=True)
class Cluster:
    nodes: list[str]
    slow: Slow
    is_link: bool  # slow inside, for a path; on the way out, for a block
    loss: float

    def speed(self, a: str, b: str) -> float:
        inside = (a in self.slow) + (b in self.slow)
        is_slow = inside > 0 if not self.is_link else inside == (2 if len(self.slow) == 2 else 1)
        return USUAL * (1 - self.loss if is_slow else 1)


def cluster(chance: random.Random, count: int, fault: str, loss: float) -> Cluster:
    nodes = [f"n{number:02}" for number in range(count)]
    if fault == "nothing":
        return Cluster(nodes, frozenset(), False, 0.0)
    if fault == "node":
        return Cluster(nodes, frozenset([chance.choice(nodes)]), False, loss)
    if fault == "2 nodes":
        return Cluster(nodes, frozenset(chance.sample(nodes, 2)), False, loss)
    size = 2 if fault == "path" else max(4, count // 4)
    first = chance.randrange(count // size) * size
    return Cluster(nodes, frozenset(nodes[first : first + size]), True, loss)


def measured(chance: random.Random, known: Cluster, pairs: Sequence[Pair], noise: float) -> dict[Pair, float]:
    speeds: dict[Pair, float] = {}
    for a, b in pairs:
        best = max(known.speed(a, b) * math.exp(chance.gauss(0, noise)) for _ in range(REPEATS))
        speeds[a, b] = speeds[b, a] = best
    return speeds


def by_floors(known: Cluster, all_speeds: Sequence[Speeds]) -> set[Slow]:
    values: dict[Pair, list[float]] = {}
    for speeds in all_speeds:
        for pair, speed in speeds.items():
            values.setdefault(pair, []).append(speed)
    directions = {pair: scores.Measured(max(several), "", several) for pair, several in values.items()}
    nodes = {node for node, score in scores.node_scores(directions).items() if score.worst < NODE_FLOOR}
    links = {
        frozenset(link)
        for link, ways in scores.link_scores(directions, known.nodes).items()
        if min(ways.values()) < LINK_FLOOR
    }
    return {*(frozenset([node]) for node in nodes), *links}


def by_spread(known: Cluster, all_speeds: Sequence[Speeds]) -> set[Slow]:
    accused = culprits(known.nodes, all_speeds)
    return {culprit.ends for culprit in (*accused.nodes, *accused.links)}


def judged(known: Cluster, named: set[Slow]) -> tuple[int, int]:
    """Return (missed, named falsely). A slow pair that crosses the edge of a slow block is slow indeed."""
    expected = {known.slow} if known.is_link else {frozenset([node]) for node in known.slow}
    expected.discard(frozenset())
    slow_pairs = {name for name in named if len(name) == 2 and known.speed(*name) < USUAL} if known.is_link else set()
    hit = expected & named
    if known.is_link and len(known.slow) > 2 and slow_pairs:
        hit = expected  # pairs of it were named, though not the block itself
    return len(expected - hit), len(named - expected - slow_pairs)


Reader = Callable[[Cluster, Sequence[Speeds]], set[Slow]]
Counts = dict[str, tuple[int, int, int, int]]  # reader -> slow ones, missed, falsely named, rounds


def trial(seed: int, count: int, fault: str, loss: float, noise: float) -> Counts:
    chance = random.Random(f"{seed} {count} {fault} {loss} {noise}")
    known = cluster(chance, count, fault, loss)
    if count <= ALL_PAIRS:
        own = [measured(chance, known, pairs, noise) for pairs in rounds(known.nodes, all_rounds(known.nodes))]
        fixed = own
    else:
        own = []
        while pairs := next_round(known.nodes, own):
            own.append(measured(chance, known, pairs, noise))
        fixed = [measured(chance, known, pairs, noise) for pairs in rounds(known.nodes, len(own))]
    counts: Counts = {}
    readers: tuple[tuple[str, Reader, list[dict[Pair, float]]], ...] = (
        ("spread", by_spread, own),
        ("floors, the same rounds", by_floors, own),
        ("floors, rounds in advance", by_floors, fixed),
    )
    for name, read, speeds in readers:
        missed, falsely = judged(known, read(known, speeds))
        counts[name] = (len(known.slow) if not known.is_link else 1, missed, falsely, len(speeds))
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, help=f"numbers of nodes (default: {SIZES})")
    parser.add_argument("--trials", type=int, default=100)
    arguments = parser.parse_args()
    heads = ("spread", "floors, the same rounds", "floors, rounds in advance")
    print(f"| nodes | slow | loss | noise | {' | '.join(heads)} | rounds |\n|{' --- |' * 8}")
    total = {head: [0, 0, 0] for head in heads}
    for count in arguments.sizes or SIZES:
        for fault in ("nothing", "node", "2 nodes", "path", "block"):
            if fault == "block" and count < 16:
                continue
            for loss in LOSSES if fault != "nothing" else (0.0,):
                for noise in NOISES:
                    runs = [trial(seed, count, fault, loss, noise) for seed in range(arguments.trials)]
                    cells = []
                    for head in heads:
                        bad, missed, falsely = (sum(run[head][place] for run in runs) for place in range(3))
                        total[head] = [a + b for a, b in zip(total[head], (bad, missed, falsely), strict=True)]
                        share = f"{100 * missed / bad:.0f}" if bad else "-"
                        cells.append(f"{share} / {100 * falsely / len(runs):.0f}")
                    mean = sum(run["spread"][3] for run in runs) / len(runs)
                    row = [str(count), fault, f"{loss:.0%}" if loss else "-", f"{noise:.0%}", *cells, f"{mean:.1f}"]
                    print(f"| {' | '.join(row)} |", flush=True)
    for head, (bad, missed, falsely) in total.items():
        print(f"{head}: {missed} of {bad} missed, {falsely} falsely named")


if __name__ == "__main__":
    main()
