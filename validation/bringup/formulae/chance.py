"""What counts prove about a share and a rate: exact bounds. Standard library."""

from __future__ import annotations

import math
from collections.abc import Callable

CONFIDENCE = 0.95
_HALVINGS = 60


def share_within(hits: int, trials: int, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Bounds of the share that `hits` of `trials` come from: Clopper and Pearson, Biometrika 26, 404 (1934). ValueError
    for counts that cannot be."""
    if not 0 <= hits <= trials or trials < 1:
        raise ValueError(f"{hits} of {trials} is no share")
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else _root(lambda share: tail - (1 - _at_most(hits - 1, trials, share)))
    high = 1.0 if hits == trials else _root(lambda share: _at_most(hits, trials, share) - tail)
    return low, high


def most_events(events: int, confidence: float = CONFIDENCE) -> float:
    """The largest expected number of events of which `events` or fewer are seen with 1 - confidence: the exact upper
    bound of a Poisson mean, Garwood, Biometrika 28, 437 (1936). Of none at 95 %: 3.0, the rule of three."""
    if events < 0:
        raise ValueError(f"{events} events")

    def above(mean: float) -> float:
        term = total = math.exp(-mean)
        for count in range(1, events + 1):
            term *= mean / count
            total += term
        return total - (1 - confidence)

    return _root(above, 10 + 4 * events)


def _at_most(hits: int, trials: int, share: float) -> float:
    return sum(math.comb(trials, k) * share**k * (1 - share) ** (trials - k) for k in range(hits + 1))


def _root(falling: Callable[[float], float], high: float = 1.0) -> float:
    """Where a falling function of 0 … high is 0."""
    low = 0.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if falling(middle) > 0 else (low, middle)
    return low
