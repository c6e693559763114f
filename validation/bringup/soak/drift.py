"""Drift: a node or a link that is slower than it was in its own first hour, and stays so.

It drifts when its last rotations were slower than all before them but one in ten, and in the median slower than the
median of its first hour by more than LEAST. So many rotations in a row are asked (`in_a_row`) that chance accuses
anybody in at most FALSE_ALARMS of the soaks, whatever the noise is like: where nothing drifts, each order of values is
as likely as any other. What most of at least FEWEST do in one rotation is none of theirs: it is taken off, and judged
by itself (ALL). `validation/benchmarks/soak.py` counts false alarms.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import median

from bringup.kernel.records import grouped

FALSE_ALARMS, LEAST, FEWEST, FIRST_S = 0.01, 0.05, 3, 3600.0
ALL = "all"  # the subject of what most of them do
Points = Sequence[tuple[float, float]]
"""When, s, and a value; or its logarithm over the median of the first hour."""


@cache
def in_a_row(series: int) -> int:
    """Return how many of the last values have to be low, of so many series. Of m + k values in any order, the last k
    are below all others but i with a chance of C(k + i, i) / C(m + k, k); the chances of all looks are added up."""
    for last in range(2, 100):
        looks = (math.comb(last + m // 10, m // 10) / math.comb(m + last, last) for m in range(last, 1000))
        if series * math.fsum(looks) <= FALSE_ALARMS:
            return last
    return 100


def changes(speeds: Mapping[str, Points]) -> dict[tuple[str, str], float]:
    """Return the measure and subject of what drifts -> its relative change. speeds: as a soak's record has them."""
    slower: dict[tuple[str, str], float] = {}
    by_measure = grouped((name.split()[0], name.split()[1]) for name in speeds)
    last = in_a_row(len(speeds) + len(by_measure))
    for measure, subjects in by_measure.items():
        several = {who: _against_first(speeds[f"{measure} {who}"]) for who in subjects}
        common = _common(several.values())
        own = {who: [by - common.get(at, 0.0) for at, by in points] for who, points in several.items()}
        for who, values in {ALL: list(common.values()), **own}.items():
            before, now = values[:-last], values[-last:]
            is_low = len(before) >= last and sum(each <= max(now) for each in before) <= len(before) // 10
            if is_low and median(now) < math.log1p(-LEAST):
                slower[measure, who] = math.expm1(median(now))
    return slower


def _against_first(points: Points) -> Points:
    usual = median(math.log(value) for at, value in points if at <= points[0][0] + FIRST_S)
    return [(at, math.log(value) - usual) for at, value in points]


def _common(several: Iterable[Points]) -> dict[float, float]:
    """Return when -> the median change of all in that rotation."""
    at_once = grouped(point for points in several for point in points)
    return {at: median(by) for at, by in at_once.items() if len(by) >= FEWEST}
