"""How often `bringup compare --baseline` and `bringup history` are right where days differ: made-up runs, the product's
own decisions.

    python validation/benchmarks/days.py FILE          # some minutes; FILE: the page

The logarithm of a speed is side + day + run. Of compare: 15 measures a check, of which none changed, or the first lost
5 %. Of history: 20 rows a call, of which none changed, or one lost 15 % for good. Each check has a seed.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from bringup.compare import history, noise, regression
from bringup.training.comparison.entries import MEASURES
from scipy import stats

CHECKS, ROWS = 1000, 20
BETWEEN_DAYS, WITHIN_DAY, OF_HISTORY = 0.01, 0.003, 0.02
BAD_DAY, LOST, LOST_OF_HISTORY = 0.15, 0.05, 0.15
BEGIN = datetime(2026, 11, 1, 6)
Kind = Literal["even", "tails", "bad days", "alike"]
"""Of days. tails: Student's t of 3 degrees. bad days: one of ten is 15 % slower, too. alike: each is half of the day
before it, and half new."""
Timed = tuple[str, float]  # opened_at, value


@dataclass(frozen=True)
class Design:
    """Days from 0 on which each side ran, and how often on each of them; on a common day in turn."""

    name: str
    old: range
    new: range
    a_day: int = 1


DESIGNS = (
    Design("5 runs on one day, 5 on another", range(1), range(1, 2), 5),
    Design("10 runs on one day, 10 on another", range(1), range(1, 2), 10),
    Design("3 and 3 runs in turn on one day", range(1), range(1), 3),
    Design("5 and 5 runs in turn on one day", range(1), range(1), 5),
    Design("3 and 3 days, 3 runs a day", range(3), range(3, 6), 3),
    Design("5 and 5 days, 1 run a day", range(5), range(5, 10)),
    Design("5 and 5 days, 3 runs a day", range(5), range(5, 10), 3),
    Design("3 common days, 2 and 2 runs a day", range(3), range(3), 2),
)


def levels(chance: random.Random, kind: Kind, spread: float) -> Iterator[float]:
    """Logarithms of days."""
    level = 0.0
    while True:
        fresh = chance.gauss(0, 1)
        if kind == "tails":
            fresh /= math.sqrt(chance.gammavariate(1.5, 2) / 3)
        level = 0.5 * level + math.sqrt(0.75) * fresh if kind == "alike" else fresh
        is_bad = kind == "bad days" and chance.random() < 0.1
        yield spread * level + (math.log1p(-BAD_DAY) if is_bad else 0.0)


def sides(
    chance: random.Random, design: Design, kind: Kind = "even", lost: float = 0.0, days: float = BETWEEN_DAYS
) -> tuple[list[Timed], list[Timed]]:
    """Runs of the baseline, and of now, which is slower by `lost`."""
    level = levels(chance, kind, days)
    known = [next(level) for _ in range(max(design.old.stop, design.new.stop))]
    both: tuple[list[Timed], list[Timed]] = ([], [])
    for turn in range(design.a_day):
        for side, ran in enumerate((design.old, design.new)):
            for day in ran:
                at = BEGIN + timedelta(days=day, minutes=40 * turn + 20 * side)
                change = math.log1p(-lost) if side else 0.0
                both[side].append((f"{at.isoformat()}Z", math.exp(known[day] + chance.gauss(0, WITHIN_DAY) + change)))
    return both


def check(seed: int, design: Design, kind: Kind, lost: float = 0.0) -> list[str]:
    """What `compare --baseline` says of each measure."""
    chance, confidence = random.Random(seed), noise.shared_confidence(len(MEASURES))
    answers = []
    for place, measure in enumerate(MEASURES):
        old, new = sides(chance, design, kind, 0.0 if place else lost)
        runs = ([noise.Timed(at, 100 * value**measure.better) for at, value in side] for side in (old, new))
        answers.append(regression.difference(measure, *runs, 0.0, confidence)[1])
    return answers


def rows(seed: int, before: int, newest: int, kind: Kind, lost: float = 0.0) -> list[history.Series]:
    """A value per day. The first row loses `lost` on the newest days."""
    chance = random.Random(seed)
    several = []
    for place in range(ROWS):
        points = []
        for day, level in zip(range(before + newest), levels(chance, kind, OF_HISTORY)):  # noqa: B905  # endless
            change = math.log1p(-lost) if place == 0 and day >= before else 0.0
            at = (BEGIN + timedelta(days=day)).isoformat()
            points.append(history.Point(f"{at}Z", "run", math.exp(level + change)))
        several.append(history.Series(f"m{place}", "here", "GB/s", 1, points))
    return several


def alarmed(seed: int, before: int, kind: Kind) -> bool:
    """Whether any row is slower, though nothing changed."""
    return any(finding.said == "regression" for finding in history.judge(rows(seed, before, 3, kind)))


def is_found(seed: int, before: int, newest: int, kind: Kind) -> bool:
    """Whether the row that lost is slower, `newest` days later."""
    findings = history.judge(rows(seed, before, newest, kind, LOST_OF_HISTORY))
    return next(finding.said for finding in findings if finding.series.measure == "m0") == "regression"


def rate(hits: Iterable[bool]) -> str:
    return f"{100 * sum(hits) / CHECKS:.1f}"


KINDS: dict[Kind, str] = {"even": "normal", "tails": "heavy tails", "bad days": "one of ten 15 % slower"}


def of_compare() -> Iterator[str]:
    """A row per design; rates of each kind of days."""
    yield f"| runs; days: {', '.join(KINDS.values())} | alarm, % | 5 % found, % |"
    yield "| --- | --- | --- |"
    for design in DESIGNS:
        quiet = {kind: [check(seed, design, kind) for seed in range(CHECKS)] for kind in KINDS}
        lost = {kind: [check(seed, design, kind, LOST)[0] for seed in range(CHECKS)] for kind in KINDS}
        alarms = (rate("REGRESSION" in answers for answers in several) for several in quiet.values())
        shares = " / ".join(rate(answer == "REGRESSION" for answer in several) for several in lost.values())
        if {answer for several in lost.values() for answer in several} == {"cannot tell"}:
            shares = "cannot tell"
        yield f"| {design.name} | {' / '.join(alarms)} | {shares} |"


def of_history() -> Iterator[str]:
    kinds: dict[Kind, str] = {**KINDS, "alike": "each like the one before"}
    yield "| days; 10 before / 30 before | alarm, % | 15 % found in 3 days, % | in 5 |"
    yield "| --- | --- | --- | --- |"
    for kind, words in kinds.items():
        cells = (
            [rate(alarmed(seed, before, kind) for seed in range(CHECKS)) for before in (10, 30)],
            *(
                [rate(is_found(seed, before, days, kind) for seed in range(CHECKS)) for before in (10, 30)]
                for days in (3, 5)
            ),
        )
        yield f"| {words} | {' | '.join(map(' / '.join, cells))} |"


PAGE = """\
# Days that differ, simulated

How often `bringup compare --baseline` and `bringup history` are right. Runs are made up, the decisions are the
product's own.

```
{command}
```

The logarithm of a speed is side + day + run. Each number is of {checks:,} trials: 0 is at most {none:.1f} %,
and 1 at most {ten:.1f} % (95 %).

**`compare --baseline`**, {measures} measures a check. Days differ by {between:g} %, runs of a day by {within:g} %.
Alarm: any measure is called slower, and nothing changed. Found: the one that lost 5 %.

{compare}

**`history`**, {rows} rows a call, days differ by {of_history:g} %. Alarm: any row is called slower, and nothing
changed. Found: one that lost 15 %.

{history}

- Six runs in turn on one morning tell more than ten a side on two days.
- Bad days hide a loss between days, and none within them.
- The history does not find a loss of 5 % where days differ by {of_history:g} %.
- Not tried: neighbours that come and go in turn with the runs of a day.
"""


def main() -> None:
    page = PAGE.format(
        command="python validation/benchmarks/days.py docs/results/days.md",
        checks=CHECKS,
        none=100 * stats.binomtest(0, CHECKS).proportion_ci(0.95).high,
        ten=100 * stats.binomtest(10, CHECKS).proportion_ci(0.95).high,
        measures=len(MEASURES),
        rows=ROWS,
        between=100 * BETWEEN_DAYS,
        within=100 * WITHIN_DAY,
        of_history=100 * OF_HISTORY,
        compare="\n".join(of_compare()),
        history="\n".join(of_history()),
    )
    Path(sys.argv[1]).write_text(page)


if __name__ == "__main__":
    main()
