"""Drift: a node or a link that is slower than it was in its own first hour.

It drifts when in each of its last LAST rotations it was slower than the median of its first hour by more than LEAST,
and by more than SPREADS times what is usual in the first hours of this measure. What most of at least FEWEST do in one
rotation is none of theirs: it is taken off, and judged by itself (ALL). Where the first hour has fewer than LAST
values, the first LAST rotations stand for it. `validation/benchmarks/soak.py` counts false alarms.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from bringup.kernel.records import grouped

LAST, FEWEST = 5, 3
LEAST, LEAST_SPREAD, SPREADS = 0.05, 0.005, 4.0
FIRST_S = 3600.0
NORMAL = 1.4826  # standard deviations in a median absolute deviation
ALL = "all"  # the subject of what most of them do
Points = Sequence[tuple[float, float, bool]]
"""When, the logarithm of the value over the median of the first hour, and whether it is of that hour."""


def changes(speeds: Mapping[str, Sequence[tuple[float, float]]]) -> dict[tuple[str, str], float]:
    """Return the measure and subject of what drifts -> its relative change. speeds: as a soak's record has them."""
    slower: dict[tuple[str, str], float] = {}
    for measure, subjects in grouped((name.split()[0], name.split()[1]) for name in speeds).items():
        several = {who: made for who in subjects if (made := _points(speeds[f"{measure} {who}"]))}
        common = _common(several.values())
        own = {who: [(at, by - common.get(at, 0.0), new) for at, by, new in made] for who, made in several.items()}
        longest = max(several.values(), key=len, default=[])
        all_of_them = [(at, common[at], is_first) for at, _, is_first in longest if at in common]
        for who, by in {**_below({ALL: all_of_them}), **_below(own)}.items():
            slower[measure, who] = by
    return slower


def _below(several: Mapping[str, Points]) -> dict[str, float]:
    """Return subject -> how far below the median of its first hour it was in its last rotations."""
    first = [abs(change) for points in several.values() for _, change, is_first in points if is_first]
    if not first:
        return {}
    limit = max(-math.log1p(-LEAST), SPREADS * max(LEAST_SPREAD, NORMAL * median(first)))
    last = {subject: [change for _, change, _ in points[-LAST:]] for subject, points in several.items()}
    return {subject: math.expm1(median(by)) for subject, by in last.items() if max(by) < -limit}


def _points(values: Sequence[tuple[float, float]]) -> Points:
    """Make the points of a node or link. Empty: there are too few values to tell."""
    levels = [(at, math.log(value)) for at, value in values]
    if len(levels) < 2 * LAST:
        return []
    first = [level for at, level in levels[:-LAST] if at <= levels[0][0] + FIRST_S]
    first = first if len(first) >= LAST else [level for _, level in levels[:LAST]]
    usual = median(first)
    return [(at, level - usual, number < len(first)) for number, (at, level) in enumerate(levels)]


def _common(several: Iterable[Points]) -> dict[float, float]:
    """Return when -> the median change of all in that rotation."""
    at_once = grouped((at, change) for points in several for at, change, _ in points)
    return {at: median(by) for at, by in at_once.items() if len(by) >= FEWEST}
