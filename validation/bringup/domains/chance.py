"""What a count of rare events says about how often they come. Standard library."""

import math

_HALVINGS = 60


def most_events(events: int) -> float:
    """Return the largest expected number of events of which `events` or fewer are seen with a chance of 5 %: the exact
    upper bound of a Poisson mean, Garwood, Biometrika 28, 437 (1936). Of none: 3.0, the rule of three."""
    if events < 0:
        raise ValueError(f"{events} events")

    low, high = 0.0, 10.0 + 4 * events
    for _ in range(_HALVINGS):
        mean = (low + high) / 2
        seen = math.fsum(math.exp(k * math.log(mean) - mean - math.lgamma(k + 1)) for k in range(events + 1))
        low, high = (mean, high) if seen > 0.05 else (low, mean)
    return low
