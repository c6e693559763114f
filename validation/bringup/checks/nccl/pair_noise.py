"""What is usual in a run of pairs, and how much it scatters: centre and noise, by median and deviation of the same run.

Of all that decides here nothing is a number of a profile. So it cannot say that a fleet is fast enough: a fleet that is
slow as a whole is usual to itself. The profile's floor of `nccl.pair.slowest` is judged beside it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import NormalDist, median

from bringup.plan.rounds import Pair

Round = Mapping[Pair, float]  # (from, to) -> GB/s, the best of its repeats; a pair without an answer: 0

LEAST_NOISE = 0.01  # of a speed: no run is trusted to be steadier than that
LEAST_LOSS = 0.05  # of a speed: less is not named, however steady the run
SILENT = 1e-3  # of the usual speed, in the place of 0
FEWEST = 4  # speeds that may stand for the healthy ones
REACH = 4.0  # noises below the centre: what is farther away is not noise
APART = 3.5  # noises of a middle by which a whole round has to differ from the others


@dataclass
class Measurements:
    """What was measured, in noises below (negative) or above the usual of its round."""

    z: dict[Pair, float] = field(default_factory=dict)  # the best over all rounds: nothing can speed a pair up
    rounds: dict[Pair, int] = field(default_factory=dict)  # in how many rounds
    noise: float = LEAST_NOISE
    centres: list[float | None] = field(default_factory=list)  # log of the usual speed, per round
    one_way: bool = False  # each pair has one number for both directions (all_reduce)

    def loss(self, z: float) -> float:
        return 1 - math.exp(min(0.0, z * self.noise))


def _top(values: Sequence[float]) -> tuple[float, float]:
    """Centre and noise of the healthy ones among logs of speeds.

    Faults only slow down. So it begins with the faster half, or with the fastest ones where a wide gap parts them from
    the others, and takes in what lies within reach of their median until nothing changes.
    """
    ordered = sorted(values, reverse=True)
    kept = _above_a_gap(ordered) or ordered[: (len(ordered) + 1) // 2]
    centre = median(kept)
    noise = 2.5 * median(abs(value - centre) for value in kept)  # the faster half of a bell is narrower than the bell
    for _ in range(20):
        floor = centre - REACH * max(noise, LEAST_NOISE)
        taken = [value for value in ordered if value >= floor]
        centre = median(taken)
        noise = 1.4826 * median(abs(value - centre) for value in taken)
        if len(taken) == len(kept):
            break
        kept = taken
    # the deviation of few values may be small by chance
    return centre, max(LEAST_NOISE, noise * (1 + 1.5 / math.sqrt(len(kept))))


def _above_a_gap(ordered: Sequence[float]) -> list[float] | None:
    """The fastest quarter or more, when what follows is farther away than their own range."""
    least = max(FEWEST, math.ceil(len(ordered) / 4))
    for count in range(least, len(ordered)):
        gap = ordered[count - 1] - ordered[count]
        clear = 2 if count < 6 else 1  # so few may lie close together by chance
        if gap > max(LEAST_LOSS, clear * (ordered[0] - ordered[count - 1])):
            return list(ordered[:count])
    return None


def measurements(played: Sequence[Round], usual_of: Callable[[Pair], float | None] | None = None) -> Measurements:
    """usual_of: log of the speed that is usual for this pair, where that is known better than by its round."""
    found = Measurements()
    found.one_way = all(met.get((b, a)) == speed for met in played for (a, b), speed in met.items())
    logs = [
        {pair: math.log(speed) if speed > 0 else -math.inf for pair, speed in met.items() if _counts(pair, found)}
        for met in played
    ]
    alive = [[value for value in met.values() if value > -math.inf] for met in logs]
    if not any(alive):
        found.centres = [None for _ in logs]
        return _all_silent(found, logs)
    usual = _set_centres(found, alive)
    for met, centre in zip(logs, found.centres, strict=True):
        for pair, value in met.items():
            known = usual_of(pair) if usual_of is not None else None
            against = known if known is not None else usual if centre is None else centre
            z = max(math.log(SILENT), value - against) / found.noise
            found.z[pair] = max(z, found.z.get(pair, -math.inf))
            found.rounds[pair] = found.rounds.get(pair, 0) + 1
    return found


def _set_centres(found: Measurements, alive: Sequence[Sequence[float]]) -> float:
    """Noise of the run and centre of each round; returns the usual speed of the rounds that are alike."""
    tops = [_top(values) if values else None for values in alive]
    residuals = [value - top[0] for values, top in zip(alive, tops, strict=True) if top for value in values]
    noise = _top(residuals)[1]
    fastest = max(top[0] for top in tops if top is not None)

    def apart(values: Sequence[float]) -> float:  # of few pairs the middle is uncertain
        return max(APART * 1.25 * noise / math.sqrt(len(values)), LEAST_LOSS / 2)

    alike = [values for values, top in zip(alive, tops, strict=True) if top and fastest - top[0] <= apart(values)]
    near = [value for values in alike for value in values]
    usual, their_noise = _top(near)
    found.noise = noise = min(noise, their_noise)
    healthy = 2 * sum(value > usual - APART * noise for value in near) >= len(near)
    for values, top in zip(alive, tops, strict=True):
        if top is None:
            found.centres.append(None)
            continue
        # a round is slow as a whole where hardly one of its pairs reaches the usual speed, which most do in the others;
        # else it is those pairs that are slow
        reach = sum(value > usual - APART * noise for value in values)
        own = healthy and abs(top[0] - usual) > apart(values) and reach < len(values) / 6
        found.centres.append(top[0] if own else usual)
    return usual


def _counts(pair: Pair, found: Measurements) -> bool:
    return not found.one_way or pair[0] < pair[1]


def _all_silent(found: Measurements, logs: Sequence[Mapping[Pair, float]]) -> Measurements:
    for met in logs:
        for pair in met:
            found.z[pair] = math.log(SILENT) / found.noise
            found.rounds[pair] = found.rounds.get(pair, 0) + 1
    return found


def threshold(expected_false: float, tests: int) -> float:
    """Noises beyond which so many of this number of healthy ones are expected by chance."""
    return NormalDist().inv_cdf(1 - min(0.4, expected_false / max(1, tests)))
