"""How often the adaptive rounds of pairs miss a slow node or link, name a healthy one, and how many rounds they take.

    python validation/benchmarks/localise_pairs.py                 # 16 to 4,096 nodes; about a quarter of an hour
    python validation/benchmarks/localise_pairs.py 16 64 --trials 1000

Simulated, with a seed per trial: the speed of a pair is that of its slower end or of its link, times a lognormal noise
of its own each time, and the best of two repeats counts, as in the phase. All else is the product's own code:
bringup.domains.next_round and localise. A cell: how many of the bad ones were missed (%), and how many healthy nodes
and links were named per 100 runs. The last column: rounds at the largest noise, in the mean and at most.
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import NamedTuple

from bringup.domains.localise import Culprit, Culprits, culprits
from bringup.domains.next_round import next_round
from bringup.kernel.plan.rounds import Pair

SIZES = {16: 400, 64: 200, 256: 80, 1024: 16, 4096: 5}  # nodes: trials of a cell
LOSSES = (0.1, 0.3, 0.6)
NOISES = (0.01, 0.03, 0.05)
REPEATS = 2  # BRINGUP_PAIR_REPEATS
USUAL = 400.0  # GB/s
Speed = Callable[[str, str], float]  # from, to -> GB/s without noise


@dataclass(frozen=True)
class Outcome:
    bad: int
    missed: int
    falsely: int
    undecided: int
    rounds: int


def fleet(count: int) -> list[str]:
    return [f"n{number:04}" for number in range(count)]


def measured_rounds(
    chance: random.Random, nodes: Sequence[str], speed: Speed, noise: float, one_way: bool
) -> list[dict[Pair, float]]:
    """Rounds until nothing is open. one_way: one number for both directions of a pair, as all_reduce gives it."""
    measured: list[dict[Pair, float]] = []

    def once(gbps: float) -> float:
        return max(gbps * math.exp(chance.gauss(0, noise)) for _ in range(REPEATS))

    while pairs := next_round(nodes, measured):
        speeds: dict[Pair, float] = {}
        for a, b in pairs:
            if one_way:
                speeds[a, b] = speeds[b, a] = once(min(speed(a, b), speed(b, a)))
            else:
                speeds[a, b], speeds[b, a] = once(speed(a, b)), once(speed(b, a))
        measured.append(speeds)
    return measured


def slow_nodes(seed: int, count: int, bad: int, loss: float, noise: float, one_way: bool = True) -> Outcome:
    """one_way False: over TCP, each bad node slow as a sender only, as a receiver only, or as both."""
    chance, nodes = random.Random(f"{seed} {count} {bad}"), fleet(count)
    ways = {node: "both" if one_way else chance.choice(("both", "out", "in")) for node in chance.sample(nodes, bad)}

    def speed(source: str, target: str) -> float:
        slow = ways.get(source) in ("both", "out") or ways.get(target) in ("both", "in")
        return USUAL * (1 - loss if slow else 1)

    measured = measured_rounds(chance, nodes, speed, noise, one_way)
    result = culprits(nodes, measured)
    named = {culprit.names[0] for culprit in result.nodes}
    false_nodes = len(named - set(ways))
    return Outcome(bad, len(set(ways) - named), false_nodes + len(result.links), len(result.undecided), len(measured))


def slow_link(seed: int, count: int, kind: str, loss: float, noise: float) -> Outcome:
    """path: between two neighbours. block: the way out of an aligned block, an eighth of the list or four nodes.
    halves: everything between the first and the second half."""
    chance, nodes = random.Random(f"{seed} {count} {kind}"), fleet(count)
    size = {"path": 2, "block": max(4, count // 8), "halves": count // 2}[kind]
    first = 0 if kind == "halves" else chance.randrange(count // size) * size
    members = set(nodes[first : first + size])

    def speed(source: str, target: str) -> float:
        inside = (source in members) + (target in members)
        slow = inside == 2 if kind == "path" else inside == 1
        return USUAL * (1 - loss if slow else 1)

    measured = measured_rounds(chance, nodes, speed, noise, one_way=True)
    result = culprits(nodes, measured)
    right = [link for link in result.links if set(link.names) == members]
    hit = _is_between_halves(result, count) if kind == "halves" else bool(right)
    # a path that leaves the block is slow indeed, though the block was to be named
    slow = [link for link in result.links if link.kind == "path" and speed(*link.names) < USUAL and link not in right]
    falsely = len(result.nodes) + len(result.links) - len(right) - len(slow)
    return Outcome(1, int(not hit), falsely, len(result.undecided), len(measured))


def _is_between_halves(result: Culprits, count: int) -> bool:
    blocks: list[Culprit] = [link for link in result.links if len(link.names) == count // 2]
    return bool(blocks) or (result.distance is not None and result.distance.slow_from == count // 2)


def cell(outcomes: Sequence[Outcome]) -> str:
    runs, bad = len(outcomes), sum(outcome.bad for outcome in outcomes)
    missed = f"{100 * sum(outcome.missed for outcome in outcomes) / bad:.0f}" if bad else "-"
    return f"{missed}, {100 * sum(outcome.falsely for outcome in outcomes) / runs:.0f}"


class Row(NamedTuple):
    loss: str
    cells: list[str]  # at each noise
    rounds: tuple[float, int]  # at the largest noise, in the mean and at most


def row(loss: float, trials: int, simulated: Callable[[int, float], Outcome]) -> Row:
    outcomes = [[simulated(seed, noise) for seed in range(trials)] for noise in NOISES]
    rounds = [outcome.rounds for outcome in outcomes[-1]]
    return Row(f"{loss:.0%}", [*map(cell, outcomes)], (sum(rounds) / trials, max(rounds)))


def printed(first: Sequence[object], several: Sequence[Row]) -> None:
    """Losses that follow each other with the same numbers share a row, with the longest of their rounds."""
    for cells, alike in groupby(several, key=lambda row: row.cells):
        same = list(alike)
        mean, most = max(row.rounds for row in same)
        losses = ", ".join(row.loss for row in same)
        print(f"| {' | '.join([*map(str, first), losses, *cells, f'{mean:.1f}, {most}'])} |", flush=True)


def table(*names: str) -> None:
    columns = [*names, *(f"noise {noise:.0%}" for noise in NOISES), "rounds"]
    print(f"\n| {' | '.join(columns)} |\n|{' --- |' * len(columns)}", flush=True)


def nodes_table(sizes: dict[int, int], one_way: bool) -> None:
    table("nodes", "bad", "loss")
    for count, trials in sizes.items():
        for bad, most in ((0, 0), (1, 1), (2, 5)) if one_way else ((1, 5),):

            def simulated(
                seed: int, noise: float, lost: float, n: int = count, low: int = bad, high: int = most
            ) -> Outcome:
                return slow_nodes(seed, n, low + seed % (high - low + 1), lost, noise, one_way)

            losses = LOSSES if most else (0.0,)
            several = [row(lost, trials, partial(simulated, lost=lost)) for lost in losses]
            printed((count, bad if bad == most else f"{bad} to {most}"), several)


def links_table(sizes: dict[int, int]) -> None:
    table("nodes", "slow", "loss")
    for count, trials in sizes.items():
        for kind in ("path", "block", "halves"):

            def simulated(seed: int, noise: float, lost: float, n: int = count, link_kind: str = kind) -> Outcome:
                return slow_link(seed, n, link_kind, lost, noise)

            printed((count, kind), [row(lost, trials, partial(simulated, lost=lost)) for lost in LOSSES])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sizes", nargs="*", type=int, help="numbers of nodes; default: 16 64 256 1024 4096")
    parser.add_argument("--trials", type=int, help="of each cell; default: fewer for many nodes")
    arguments = parser.parse_args()
    sizes = {size: arguments.trials or SIZES.get(size, 50) for size in arguments.sizes or SIZES}
    print("Each cell: missed in %, falsely named per 100 runs; rounds at the largest noise: in the mean, at most")
    print("\nSlow nodes, one number for both directions of a pair (all_reduce):")
    nodes_table(sizes, one_way=True)
    print("\nSlow nodes over TCP, each direction for itself; slow as sender, as receiver, or as both:")
    nodes_table(sizes, one_way=False)
    print("\nSlow links (all_reduce):")
    links_table(sizes)


if __name__ == "__main__":
    main()
