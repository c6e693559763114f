"""What counts prove about a rate: an exact bound. Standard library."""

from __future__ import annotations

import math

CONFIDENCE = 0.95
_HALVINGS = 60


def most_events(events: int, confidence: float = CONFIDENCE) -> float:
    """Return the largest expected number of events of which `events` or fewer are seen with 1 - confidence: the exact
    upper bound of a Poisson mean, Garwood, Biometrika 28, 437 (1936). Of none at 95 %: 3.0, the rule of three."""
    if events < 0:
        raise ValueError(f"{events} events")

    low, high = 0.0, 10.0 + 4 * events
    for _ in range(_HALVINGS):
        mean = (low + high) / 2
        seen = math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(events + 1))
        low, high = (mean, high) if seen > 1 - confidence else (low, mean)
    return low


def log_choose(several: int, of_them: int) -> float:
    """Return the logarithm of a binomial coefficient: it is too large for a float from about 1,030 on."""
    return math.lgamma(several + 1) - math.lgamma(of_them + 1) - math.lgamma(several - of_them + 1)
