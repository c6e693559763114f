"""Centre and noise of a run's pairs, from the median and deviation of the same run.

No number of a profile is used here. So it cannot tell whether a fleet is fast enough: if all pairs are slow, none
stands out. For that, the profile's floor of `nccl.pair.slowest` is judged.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, median

from bringup.kernel.plan.rounds import Pair

Round = Mapping[Pair, float]  # (from, to) -> GB/s, the best of its repeats; a pair without an answer: 0

LEAST_NOISE = 0.01  # share of a speed: the smallest noise that is assumed
LEAST_LOSS = 0.05  # share of a speed: a smaller loss is not named, even if the run is steadier
SILENT = 1e-3  # of the usual speed, in the place of 0
FEWEST = 4  # speeds that may stand for the healthy ones
REACH = 4.0  # noises below the centre: what is farther away is not noise
APART = 3.5  # noises of a middle by which a whole round has to differ from the others


@dataclass
class Measurements:
    """Measurements in units of noise, below (negative) or above the centre of their round."""

    z: dict[Pair, float] = field(default_factory=dict)  # the best over all rounds: nothing can speed a pair up
    rounds: dict[Pair, int] = field(default_factory=dict)  # in how many rounds
    noise: float = LEAST_NOISE
    centres: list[float | None] = field(default_factory=list)  # log of the usual speed, per round
    one_way: bool = False  # each pair has one number for both directions (all_reduce)

    def loss(self, z: float) -> float:
        return 1 - math.exp(min(0.0, z * self.noise))


def _top(values: Sequence[float]) -> tuple[float, float]:
    """Centre and noise of the healthy values among logs of speeds.

    Faults only slow down. So it begins with the faster half, or with the fastest values if a wide gap separates them
    from the rest, and then adds values near their median until nothing changes.
    """
    ordered = sorted(values, reverse=True)
    top = _above_a_gap(ordered) or ordered[: (len(ordered) + 1) // 2]
    centre = median(top)
    noise = 2.5 * median(abs(value - centre) for value in top)  # the faster half of a bell is narrower than the bell
    for _ in range(20):
        floor = centre - REACH * max(noise, LEAST_NOISE)
        taken = [value for value in ordered if value >= floor]
        centre = median(taken)
        noise = 1.4826 * median(abs(value - centre) for value in taken)
        if len(taken) == len(top):
            break
        top = taken
    # the deviation of few values may be small by chance
    return centre, max(LEAST_NOISE, noise * (1 + 1.5 / math.sqrt(len(top))))


def _above_a_gap(ordered: Sequence[float]) -> list[float] | None:
    """Return the fastest quarter or more, if the next value is farther away than their own range. Else empty."""
    least = max(FEWEST, math.ceil(len(ordered) / 4))
    for count in range(least, len(ordered)):
        gap = ordered[count - 1] - ordered[count]
        clear = 2 if count < 6 else 1  # so few may lie close together by chance
        if gap > max(LEAST_LOSS, clear * (ordered[0] - ordered[count - 1])):
            return list(ordered[:count])
    return None


def measurements(rounds: Sequence[Round], usual_of: Callable[[Pair], float | None] | None = None) -> Measurements:
    """Measure each pair. usual_of: log of its usual speed, if it is known better than from its round."""
    result = Measurements()
    result.one_way = all(speeds.get((b, a)) == speed for speeds in rounds for (a, b), speed in speeds.items())
    counted = [{(a, b): v for (a, b), v in of.items() if not result.one_way or a < b} for of in rounds]
    logs = [{pair: math.log(v) if v > 0 else -math.inf for pair, v in speeds.items()} for speeds in counted]
    alive = [[value for value in round_logs.values() if value > -math.inf] for round_logs in logs]
    result.centres = [None for _ in logs]
    usual = _set_centres(result, alive) if any(alive) else 0.0
    for round_logs, centre in zip(logs, result.centres, strict=True):
        for pair, value in round_logs.items():
            known = usual_of(pair) if usual_of is not None else None
            against = known if known is not None else usual if centre is None else centre
            z = max(math.log(SILENT), value - against) / result.noise
            result.z[pair] = max(z, result.z.get(pair, -math.inf))
            result.rounds[pair] = result.rounds.get(pair, 0) + 1
    return result


def _set_centres(result: Measurements, alive: Sequence[Sequence[float]]) -> float:
    """Noise of the run and centre of each round; returns the usual speed of the rounds that are alike."""
    tops = [_top(values) if values else None for values in alive]
    residuals = [value - top[0] for values, top in zip(alive, tops, strict=True) if top for value in values]
    noise = _top(residuals)[1]
    fastest = max(top[0] for top in tops if top is not None)

    def uncertainty(values: Sequence[float]) -> float:  # of few pairs the middle is uncertain
        return max(APART * 1.25 * noise / math.sqrt(len(values)), LEAST_LOSS / 2)

    alike = [values for values, top in zip(alive, tops, strict=True) if top and fastest - top[0] <= uncertainty(values)]
    near = [value for values in alike for value in values]
    usual, their_noise = _top(near)
    result.noise = noise = min(noise, their_noise)
    healthy = 2 * sum(value > usual - APART * noise for value in near) >= len(near)
    for number, (values, top) in enumerate(zip(alive, tops, strict=True)):
        if top is None:
            continue
        # a whole round is slow if hardly any of its pairs reaches the usual speed, and most pairs of other rounds do;
        # else it is those pairs that are slow
        reach = sum(value > usual - APART * noise for value in values)
        is_round_slow = healthy and abs(top[0] - usual) > uncertainty(values) and reach < len(values) / 6
        result.centres[number] = top[0] if is_round_slow else usual
    return usual


def threshold(expected_false: float, tests: int) -> float:
    """Return the distance in noises beyond which this number of healthy values is expected by chance."""
    return NormalDist().inv_cdf(1 - min(0.4, expected_false / max(1, tests)))
