"""Is a difference between two sets of repeated measurements more than noise? Standard library, nothing random.

One decision for `compare --baseline`, `history` and `sweep`:

  regression      the whole interval is on the worse side of zero, and the change is larger than `ignore`
  improvement     the same on the better side
  within noise    the interval excludes a regression as large as `exclude`: this is what a pass says
  cannot tell     neither; more repetitions are needed

FALSE_ALARMS bounds the chance that anything at all is called a regression when nothing changed: it is divided among
the comparisons (Bonferroni). A pass asks for evidence too (two one-sided tests: Schuirmann, J. Pharmacokin. Biopharm.
15, 657, 1987): few or noisy runs that merely show no difference are `incomplete`.

The unit of repetition is the RUN. What differs between runs (placement, clocks, neighbours on the fabric) cannot be
seen inside one, so the steps of a run are never counted as repetitions; they only say how small the noise cannot be.
Intervals instead of single numbers: Georges, Buytaert and Eeckhout, Statistically Rigorous Java Performance
Evaluation, OOPSLA 2007. Repetition on the level where the noise arises: Kalibera and Jones, Rigorous Benchmarking in
Reasonable Time, ISMM 2013.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Literal

FALSE_ALARMS = 0.01
LEAST_BLOCKS = 8
MOST_REPETITIONS = 30


@dataclass(frozen=True)
class Interval:
    """A relative change (+0.05: 5 % more), and the bounds it lies in with the confidence that was requested."""

    change: float
    low: float
    high: float


Conclusion = Literal["regression", "improvement", "within noise", "cannot tell"]


def conclusion(interval: Interval, better: int, ignore: float, exclude: float) -> Conclusion:
    """better: +1 where more is better, -1 where less is. ignore, exclude: relative changes."""
    worst, best = (interval.low, interval.high) if better > 0 else (-interval.high, -interval.low)
    if abs(interval.change) > ignore and not worst <= 0 <= best:
        return "regression" if best < 0 else "improvement"
    return "within noise" if worst > -exclude else "cannot tell"


def shared_confidence(comparisons: int) -> float:
    """For each of several comparisons."""
    return 1 - 2 * FALSE_ALARMS / max(1, comparisons)


def t_quantile(confidence: float, freedom: int) -> float:
    """t with P(|T| <= t) = confidence, T Student's with `freedom` >= 1: Abramowitz and Stegun 26.7.3 and 26.7.4, by
    bisection."""
    if not 0 < confidence < 1 or freedom < 1:
        raise ValueError(f"no t quantile for confidence {confidence} and {freedom} degrees of freedom")
    low, high = 0.0, math.pi / 2
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if _share_within(middle, freedom) < confidence else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


def _share_within(angle: float, freedom: int) -> float:
    """P(|T| <= sqrt(freedom) tan(angle))."""
    cosine, remainder = math.cos(angle), freedom % 2
    term = cosine if remainder else 1.0
    total = 0.0 if freedom == 1 else term
    for power in range(2 + remainder, freedom, 2):
        term *= cosine**2 * (power - 1) / power
        total += term
    total *= math.sin(angle)
    return 2 / math.pi * (angle + total) if remainder else total


def interval(before: Sequence[float], after: Sequence[float], confidence: float, floor: float = 0.0) -> Interval | None:
    """How much `after` differs from `before`, a value > 0 per run; None when there is one run on either side:
    nothing repeats.

    The difference of the mean logarithms, so that +5 % and the -4.8 % back are the same distance. Both sides
    repeated: Welch's interval, degrees of freedom rounded down. One side a single run: Student's with the other
    side's spread, which supposes that the single run is of the same spread. `floor`: relative standard deviation
    below which the spread is not believed.
    """
    logs = [[math.log(value) for value in side] for side in (before, after)]
    counts = [len(side) for side in logs]
    if min(counts) < 1 or max(counts) < 2:
        return None
    difference = fmean(logs[1]) - fmean(logs[0])
    variances = [max(spread(side), floor) ** 2 for side in (before, after) if len(side) > 1]
    if len(variances) == 2:
        parts = [variance / count for variance, count in zip(variances, counts, strict=True)]
        error2 = sum(parts)
        welch = (
            error2**2 / sum(part**2 / (count - 1) for part, count in zip(parts, counts, strict=True))
            if error2 > 0
            else 1.0
        )
        freedom = max(1, math.floor(welch))
    else:
        error2 = variances[0] * sum(1 / count for count in counts)
        freedom = max(counts) - 1
    half = t_quantile(confidence, freedom) * math.sqrt(error2)
    return Interval(math.expm1(difference), math.expm1(difference - half), math.expm1(min(difference + half, 700.0)))


def spread(values: Sequence[float]) -> float:
    """Relative standard deviation (of the logarithms); 0 for a single value, which has none."""
    return stdev([math.log(value) for value in values]) if len(values) > 1 else 0.0


def error_inside(series: Sequence[float]) -> float | None:
    """Relative standard error of the mean of one run's steps, neighbours being alike; None when the series is too
    short.

    Means of blocks of 1, 2, 4, ... steps, and the largest error that any of these lengths gives, with at least 8
    blocks: steps that follow each other are not independent, and the error of single steps is then too small
    (Flyvbjerg and Petersen, J. Chem. Phys. 91, 461, 1989).
    """
    if len(series) < LEAST_BLOCKS or fmean(series) <= 0:
        return None
    errors = []
    length = 1
    while len(series) // length >= LEAST_BLOCKS:
        count = len(series) // length
        blocks = [fmean(series[index * length : (index + 1) * length]) for index in range(count)]
        errors.append(stdev(blocks) / math.sqrt(count))
        length *= 2
    return max(errors) / fmean(series)


def errors_inside(runs: Iterable[Sequence[float]]) -> list[float]:
    """`error_inside` of the runs whose series are long enough."""
    return [error for series in runs if (error := error_inside(series)) is not None]


def floor_of(errors: Sequence[float]) -> float:
    """The spread between runs that their own steps make the least."""
    return fmean(error**2 for error in errors) ** 0.5 if errors else 0.0


def explained_inside(errors: Sequence[float]) -> float | None:
    """The relative difference of two runs that their own steps explain: two standard errors of it. None: unknown."""
    return 2 * math.fsum(error**2 for error in errors) ** 0.5 if errors else None


def repetitions(deviation: float, size: float, confidence: float, more_than: int) -> int | None:
    """Runs on each side for an interval of +- 0.8 x `size` (the rest is for where its middle falls); None: more than
    are sensible.

    deviation: relative standard deviation between runs. more_than: as many did not suffice.
    """
    for count in range(more_than + 1, MOST_REPETITIONS + 1):
        if t_quantile(confidence, 2 * count - 2) * deviation * math.sqrt(2 / count) <= 0.8 * size:
            return count
    return None
