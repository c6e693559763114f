"""What counts prove about a share and a rate: exact bounds. Standard library."""

from __future__ import annotations

import math
from collections.abc import Callable

CONFIDENCE = 0.95
_HALVINGS = 60


def share_within(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Bound the share that `hits` of `trials` come from: Clopper and Pearson, Biometrika 26, 404 (1934).
    ValueError for counts that cannot be."""
    if not 0 <= hits <= trials or trials < 1:
        raise ValueError(f"{hits} of {trials} is no share")
    tail = (1 - confidence) / 2
    return 1 - _most(trials - hits, trials, tail), _most(hits, trials, tail)


def _most(hits: int, trials: int, tail: float) -> float:
    """Return the share of which `hits` of `trials` or fewer are seen with the probability `tail`."""
    if hits == trials:
        return 1.0
    ways = [log_choose(trials, count) for count in range(hits + 1)]

    def above(share: float) -> float:
        yes, no = math.log(share), math.log1p(-share)
        return math.fsum(math.exp(way + k * yes + (trials - k) * no) for k, way in enumerate(ways)) - tail

    return _root(above, 1.0)


def most_events(events: int, confidence: float = CONFIDENCE) -> float:
    """Return the largest expected number of events of which `events` or fewer are seen with 1 - confidence: the exact
    upper bound of a Poisson mean, Garwood, Biometrika 28, 437 (1936). Of none at 95 %: 3.0, the rule of three."""
    if events < 0:
        raise ValueError(f"{events} events")

    def above(mean: float) -> float:
        terms = (k * math.log(mean) - mean - math.lgamma(k + 1) for k in range(events + 1))
        return math.fsum(map(math.exp, terms)) - (1 - confidence)

    return _root(above, 10 + 4 * events)


def log_choose(several: int, of_them: int) -> float:
    """Return the logarithm of a binomial coefficient: it is too large for a float from about 1,030 on."""
    return math.lgamma(several + 1) - math.lgamma(of_them + 1) - math.lgamma(several - of_them + 1)


def _root(falling: Callable[[float], float], high: float) -> float:
    """Where a falling function of 0 … high is 0."""
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return low
