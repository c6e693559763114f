"""How often a healthy node is called a lemon, and how often a lemon is found: simulated fleets, the product's own test.

    python validation/benchmarks/lemon_nodes.py FILE          # about ten minutes; FILE: the page

A fleet: 64 nodes, 24 users whose own programs fail at 1 to 40 %, jobs of 1 to 16 nodes that take the first free ones.
Who fails tries again on the same nodes at once, in two of three cases, up to five times. A lemon lets each job in
which it stands fail with a further probability. Each fleet has a seed.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

from bringup.compare import lemons
from bringup.evidence.slurm import AccountedJob

NODES, USERS, JOBS = 64, 24, 2000
SIZES = (1, 1, 1, 2, 2, 4, 4, 8, 16)
FLEETS, WITH_LEMON = 1000, 200
EFFECTS = (0.05, 0.1, 0.2, 0.4)
BEGIN = datetime(2026, 10, 1)
LEMON = "n17"


def fleet(seed: int, effect: float = 0.0, jobs: int = JOBS) -> list[AccountedJob]:
    """effect: what the lemon adds to the probability that a job with it fails."""
    return list(_jobs(random.Random(seed), effect, jobs))  # noqa: S311


def _jobs(chance: random.Random, effect: float, jobs: int) -> Iterator[AccountedJob]:
    names = [f"n{number:02}" for number in range(NODES)]
    habits = [(f"u{number}", chance.uniform(0.01, 0.4), chance.choice(SIZES)) for number in range(USERS)]
    free_at = dict.fromkeys(names, BEGIN)
    made = 0
    while made < jobs:
        user, fails, size = chance.choices(habits, [1 / (1 + place) for place in range(USERS)])[0]
        nodes = tuple(sorted(sorted(names, key=lambda name: (free_at[name], name))[:size]))
        start = max(free_at[node] for node in nodes) + timedelta(minutes=chance.expovariate(1 / 10))
        for _ in range(6):
            is_bad = chance.random() < fails or (LEMON in nodes and chance.random() < effect)
            end = start + timedelta(minutes=chance.uniform(1, 20) if is_bad else chance.uniform(30, 600))
            yield AccountedJob(user, "FAILED" if is_bad else "COMPLETED", nodes, start, end)
            made += 1
            if not is_bad or chance.random() < 1 / 3:
                break
            start = end + timedelta(minutes=1)
        free_at |= dict.fromkeys(nodes, end)


def main() -> None:
    begun = time.monotonic()
    false = sum(bool(lemons.find(fleet(seed)).named) for seed in range(FLEETS))
    rows = []
    for effect in EFFECTS:
        named = [lemons.find(fleet(seed, effect)).named for seed in range(WITH_LEMON)]
        right = sum(LEMON in {each.node for each in several} for several in named)
        others = sum(any(each.node != LEMON for each in several) for several in named)
        rows.append(f"| {100 * effect:.0f} % | {right} of {WITH_LEMON} | {others} of {WITH_LEMON} |")
    page = [
        "# Lemon nodes, simulated",
        "",
        "How often `bringup history --lemons` names a healthy node, and how often it finds a lemon. No cluster was",
        "asked: jobs are made up, the test is the product's own.",
        "",
        "```",
        "python validation/benchmarks/lemon_nodes.py docs/results/lemons.md",
        "```",
        "",
        f"A fleet has {NODES} nodes, {USERS} users whose own programs fail at 1 to 40 %, and {JOBS} jobs of 1 to 16",
        "nodes. Who fails tries again on the same nodes, in two of three cases. A lemon lets jobs with it fail with",
        "a further probability.",
        "",
        f"**Without a lemon: in {false} of {FLEETS} fleets a node was named.** The test allows 1 %.",
        "",
        "| the lemon adds | fleets in which it was found | fleets in which another node was named |",
        "| --- | --- | --- |",
        *rows,
    ]
    Path(sys.argv[1]).write_text("\n".join([*page, ""]))
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
