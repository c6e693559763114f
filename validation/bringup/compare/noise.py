"""Is a difference between two sets of repeated measurements more than noise? Standard library, nothing random.

The logarithm of a value is side + day + run: placement, temperature, neighbours and the fabric's last boot are of a
day, and runs of one day share them. So what repeats is decided by when the runs were opened (`fit`):

  days of both sides   the day cancels; what runs of one day differ by is the noise, and a single day is enough
  no such day          a day is one value, the median of its runs, and needs LEAST_DAYS on each side
  neither              nothing can be told

Then `conclusion`, for `compare --baseline` and `sweep`:

  regression      the whole interval is on the worse side of zero, and the change is larger than `ignore`
  improvement     the same on the better side
  within noise    the interval excludes a regression as large as `exclude`: this is what a pass says
  cannot tell     neither; more repetitions are needed

FALSE_ALARMS bounds the chance that anything at all is called a regression when nothing changed: it is divided among
the comparisons (Bonferroni). A pass asks for evidence too (Schuirmann, J. Pharmacokin. Biopharm. 15, 657, 1987). Both
sides have one spread, so that 3 runs against 10 give no more false alarms than 6 against 6. Repetition on the level
where the noise arises: Kalibera and Jones, Rigorous Benchmarking in Reasonable Time, ISMM 2013.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import cache
from statistics import fmean, median, stdev
from typing import Literal, NamedTuple

FALSE_ALARMS = 0.01
LEAST_BLOCKS = 8
LEAST_DAYS = 5  # of each side, where no day is of both
LEAST_FREEDOM = 3  # degrees, within days
MOST_REPETITIONS = 30
_PARTS = 200


class Timed(NamedTuple):
    """A value > 0 of one run, and when the run was opened: UTC, as in its record."""

    opened_at: str
    value: float


class Fit(NamedTuple):
    """How much the second side differs from the first, and what repeats."""

    unit: Literal["runs", "days"]  # whose spread is the noise
    difference: float  # of the logarithms
    spread: float  # relative standard deviation of a unit
    share: float  # the variance of the difference, in variances of a unit
    freedom: int  # degrees
    days: list[str]  # on which both sides ran
    least: int  # units of the side that has fewer
    between: float | None  # relative standard deviation of these days; None: one day


class Interval(NamedTuple):
    """A relative change (+0.05: 5 % more), and the bounds it lies in with the confidence that was requested."""

    change: float
    low: float
    high: float


Conclusion = Literal["regression", "improvement", "within noise", "cannot tell"]


def conclusion(interval: Interval, better: int, ignore: float, exclude: float) -> Conclusion:
    """Conclude from an interval. better: +1: more is better, -1: less is. ignore, exclude: relative changes."""
    worst, best = (interval.low, interval.high) if better > 0 else (-interval.high, -interval.low)
    if abs(interval.change) > ignore and not worst <= 0 <= best:
        return "regression" if best < 0 else "improvement"
    return "within noise" if worst > -exclude else "cannot tell"


def shared_confidence(comparisons: int) -> float:
    """Return the confidence for each of several comparisons."""
    return 1 - 2 * FALSE_ALARMS / max(1, comparisons)


@cache
def t_quantile(confidence: float, freedom: int) -> float:
    """Compute t with P(|T| <= t) = confidence, T Student's with `freedom` >= 1: the density of the angle whose tangent
    is T / sqrt(freedom) is cos^(freedom - 1). By Simpson's rule and bisection."""
    if not 0 < confidence < 1 or freedom < 1:
        raise ValueError(f"no t quantile for confidence {confidence} and {freedom} degrees of freedom")

    def below(angle: float) -> float:
        ends_and_middles = zip((1, *[4, 2] * (_PARTS - 1), 4, 1), range(2 * _PARTS + 1), strict=True)
        return angle * math.fsum(by * math.cos(angle * k / (2 * _PARTS)) ** (freedom - 1) for by, k in ends_and_middles)

    low, high = 0.0, math.pi / 2
    whole = below(high)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if below(middle) < confidence * whole else (low, middle)
    return math.sqrt(freedom) * math.tan(low)


_Days = dict[str, tuple[list[float], list[float]]]  # logarithms of both sides


def fit(before: Sequence[Timed], after: Sequence[Timed], floor: float = 0.0) -> Fit | None:
    """Fit both sides. None: days may differ by as much. floor: a smaller relative spread is not believed."""
    days: _Days = defaultdict(lambda: ([], []))
    times: dict[str, tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, runs in enumerate((before, after)):
        for run in runs:
            days[run.opened_at[:10]][side].append(math.log(run.value))
            times[run.opened_at[:10]][side].append(run.opened_at)
    common = {day: sides for day, sides in sorted(days.items()) if all(sides)}
    in_turn = {day: common[day] for day in common if max(map(min, times[day])) <= min(map(max, times[day]))}
    # a day drifts, too: where one side ran wholly before the other, each is one value
    pairs = {day: ([median(old)], [median(new)]) for day, (old, new) in common.items()}
    for several in (in_turn, pairs):
        if several and (fitted := _least_squares("runs", several, floor)).freedom >= LEAST_FREEDOM:
            return fitted
    old, new = ([median(sides[side]) for sides in days.values() if sides[side]] for side in (0, 1))
    return _least_squares("days", {"": (old, new)}, floor) if min(len(old), len(new)) >= LEAST_DAYS else None


def _least_squares(unit: Literal["runs", "days"], days: _Days, floor: float) -> Fit:
    """Of day + side. Where no day is of both sides, all days are one."""
    weights = [1 / (1 / len(old) + 1 / len(new)) for old, new in days.values()]
    differences = [fmean(new) - fmean(old) for old, new in days.values()]
    pairs, weight = list(zip(weights, differences, strict=True)), math.fsum(weights)
    difference = math.fsum(each * by for each, by in pairs) / weight
    squares = math.fsum((value - fmean(side)) ** 2 for sides in days.values() for side in sides for value in side)
    squares += math.fsum(each * (by - difference) ** 2 for each, by in pairs)
    counts = [sum(len(sides[side]) for sides in days.values()) for side in (0, 1)]
    freedom = sum(counts) - len(days) - 1
    spread = max(math.sqrt(squares / freedom) if freedom else 0.0, floor)
    levels = [fmean([*old, *(value - difference for value in new)]) for old, new in days.values()]
    between = stdev(levels) if len(levels) > 1 else None
    return Fit(unit, difference, spread, 1 / weight, freedom, list(days), min(counts), between)


def why_nothing_fits(before: Sequence[Timed], after: Sequence[Timed]) -> str:
    """Say why `fit` gives nothing, and what to run."""
    days = [sorted({run.opened_at[:10] for run in side}) for side in (before, after)]
    if both := sorted({*days[0]} & {*days[1]}):
        why = f"there are too few runs in turn on a day of both sides ({', '.join(both)})"
    elif single := [each for each in days if len(each) == 1]:
        why = f"all runs of a side are of one day ({single[0][0]}): a day may differ by as much"
    else:
        why = f"a side has {min(map(len, days))} days, and none is of both sides: a day may differ by as much"
    return f"{why}; run the baseline again beside the new runs, in turn, or on {LEAST_DAYS} days"


def interval(fit: Fit, confidence: float) -> Interval:
    """Return the interval of the change, so that +5 % and the -4.8 % back are the same distance."""
    half = t_quantile(confidence, fit.freedom) * fit.spread * math.sqrt(fit.share)
    low, high = fit.difference - half, min(fit.difference + half, 700.0)
    return Interval(math.expm1(fit.difference), math.expm1(low), math.expm1(high))


def error_inside(series: Sequence[float]) -> float | None:
    """Return the relative standard error of the mean of one run's steps, neighbours being alike; None when the series
    is too short.

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


def floor_of(runs: Iterable[Sequence[float]]) -> float:
    """Return the spread between runs that their own steps, where these are enough, make the least."""
    errors = [error for steps in runs if (error := error_inside(steps)) is not None]
    return fmean(error**2 for error in errors) ** 0.5 if errors else 0.0


def repetitions(deviation: float, size: float, confidence: float, more_than: int) -> int | None:
    """Count runs that each side needs for an interval of +- 0.8 x `size` (the rest is for where its middle falls);
    None: more than are sensible.

    deviation: relative standard deviation between runs. more_than: as many did not suffice.
    """
    for count in range(more_than + 1, MOST_REPETITIONS + 1):
        if t_quantile(confidence, 2 * count - 2) * deviation * math.sqrt(2 / count) <= 0.8 * size:
            return count
    return None
