"""How often a healthy node is called a lemon, and how often a lemon is found: simulated fleets, the product's own test.

    python validation/benchmarks/lemon_nodes.py FILE          # about ten minutes; FILE: the page

A fleet: 64 nodes, 24 users with one to three programs that fail at 1 to 20 %, jobs of 1 to 16 nodes that take the
first free ones. Who fails tries again on the same nodes, in two of three cases, up to five times. Failures come in
bursts, because programs change: see `Kind`. A lemon lets each job in which it stands fail with a further probability.
Each fleet has a seed.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from bringup.compare import lemons
from bringup.readers.jobs import AccountedJob

NODES, USERS, BROKEN, DAYS = 64, 24, 10, 30
SIZES = (1, 1, 1, 2, 2, 4, 4, 8, 16)
FLEETS, WITH_LEMON = 400, 100
EFFECTS = (0.05, 0.1, 0.2, 0.4)
BEGIN = datetime(2026, 10, 1)
LEMON = "n17"
Kind = Literal["plain", "nightly", "bursts", "sticky", "mended", "mended by one", "mended later"]
"""nightly: one user's job of each night always fails, on the first free node. bursts: everything of ten users fails
for three days, from a random hour on. sticky: so, too, and each user gets the same nodes for three days, where free.
mended: there are only programs that fail on half of the mornings, on the first free node, until they are mended.
Later: after a success."""
MENDED: dict[Kind, int] = {"mended": 10, "mended by one": 1, "mended later": 10}  # users; there are no others
KINDS: dict[Kind, str] = {
    "plain": "failures come at random",
    "nightly": "besides, a nightly job always fails, on the first free node",
    "bursts": f"all jobs of {BROKEN} users fail for 3 of the {DAYS} days, from a random hour on",
    "sticky": "so, too, and each user's jobs stay on the same nodes for 3 days, where these are free",
    "mended": "10 users alone, whose programs fail on half of the mornings until they are repaired",
    "mended by one": "so, of one user",
    "mended later": "so, of 10 users, but after a first success of the day: the condition does not hold",
}


def fleet(seed: int, kind: Kind = "plain", effect: float = 0.0) -> list[AccountedJob]:
    """effect: what the lemon adds to the probability that a job with it fails."""
    return list(_jobs(random.Random(seed), kind, effect))


Request = tuple[datetime, str, str, int, float, int]  # when, user, program, nodes, probability to fail; first failures


def _requests(chance: random.Random, kind: Kind) -> Iterator[Request]:
    for number in range(USERS):
        programs = [
            (f"p{each}", chance.choice(SIZES), chance.uniform(0.01, 0.2)) for each in range(chance.randint(1, 3))
        ]
        broken_at = BEGIN + timedelta(days=chance.uniform(0, DAYS - 3)) if number < BROKEN else None
        a_day = chance.choice((1, 2, 4, 8))
        for day in range(DAYS):
            for _ in range(0 if kind in MENDED else a_day):
                at = BEGIN + timedelta(days=day, hours=chance.uniform(8, 20))
                name, size, fails = chance.choice(programs)
                is_broken = (
                    kind in ("bursts", "sticky") and broken_at and broken_at <= at < broken_at + timedelta(days=3)
                )
                yield at, f"u{number}", name, size, 1.0 if is_broken else fails, 0
            if number < MENDED.get(kind, 0):
                at = BEGIN + timedelta(days=day, hours=7 + number / USERS)
                if kind == "mended later":
                    yield at - timedelta(hours=2), f"u{number}", "mended", 1, 0.0, 0
                yield at, f"u{number}", "mended", 1, 0.0, chance.randint(1, 5) if chance.random() < 0.5 else 0
                for hours in (5, 6, 7, 8):
                    yield at + timedelta(hours=hours), f"u{number}", "mended", 1, 0.0, 0
    if kind == "nightly":
        yield from ((BEGIN + timedelta(days=day, hours=2), "u0", "nightly", 1, 1.0, 0) for day in range(DAYS))


def _jobs(chance: random.Random, kind: Kind, effect: float) -> Iterator[AccountedJob]:
    names = [f"n{number:02}" for number in range(NODES)]
    free_at = dict.fromkeys(names, BEGIN)
    salt = chance.random() if kind == "sticky" else 0
    for at, user, program, size, fails, first in sorted(_requests(chance, kind)):
        ready = {name: max(free_at[name], at) for name in names}
        own = random.Random(f"{salt} {user} {(at - BEGIN).days // 3}")
        order = own.sample(names, NODES) if kind == "sticky" else names
        nodes = tuple(sorted(sorted(order, key=lambda name: ready[name])[:size]))
        start = max(ready[node] for node in nodes)
        for attempt in range(6):
            is_bad = attempt < first or chance.random() < fails or (LEMON in nodes and chance.random() < effect)
            end = start + timedelta(minutes=chance.uniform(1, 20) if is_bad else chance.uniform(30, 600))
            yield AccountedJob(user, program, "FAILED" if is_bad else "COMPLETED", nodes, start, end)
            free_at |= dict.fromkeys(nodes, end)
            if not is_bad or (attempt >= first and chance.random() < 1 / 3):
                break
            start = end + timedelta(minutes=chance.uniform(1, 90))


def main() -> None:
    begun = time.monotonic()
    healthy = [
        f"| {words} | {sum(bool(lemons.find(fleet(seed, kind)).named) for seed in range(FLEETS))} of {FLEETS} |"
        for kind, words in KINDS.items()
    ]
    rows = []
    for effect in EFFECTS:
        named = [lemons.find(fleet(seed, "bursts", effect)).named for seed in range(WITH_LEMON)]
        right = sum(LEMON in {each.node for each in several} for several in named)
        others = sum(any(each.node != LEMON for each in several) for several in named)
        rows.append(f"| {100 * effect:.0f} % | {right} of {WITH_LEMON} | {others} of {WITH_LEMON} |")
    page = [
        "# Lemon nodes, simulated",
        "",
        "How often `bringup history --lemons` names a healthy node, and how often it finds a lemon. Jobs are made up.",
        "",
        "```",
        "python validation/benchmarks/lemon_nodes.py docs/results/lemons.md",
        "```",
        "",
        f"A fleet has {NODES} nodes and {USERS} users with one to three programs each, which fail at 1 to 20 %. A user",
        f"submits 1 to 8 jobs of 1 to 16 nodes on each of {DAYS} days. They take the first free nodes. Who fails tries",
        "again on the same nodes, in two of three cases. A lemon lets jobs with it fail with a further probability.",
        "",
        "**Without a lemon.** 1 % is allowed, if jobs of a program after its first success of a day differ by chance:",
        "",
        "| fleets | in which a node was named |",
        "| --- | --- |",
        *healthy,
        "",
        "**With one**, in fleets whose users have broken days:",
        "",
        "| the lemon adds | fleets in which it was found | fleets in which another node was named |",
        "| --- | --- | --- |",
        *rows,
    ]
    Path(sys.argv[1]).write_text("\n".join([*page, ""]))
    print(f"{time.monotonic() - begun:.0f} s")


if __name__ == "__main__":
    main()
