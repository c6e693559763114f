"""How often to save a checkpoint, and what failures leave of the time. Failures are Poisson events."""

from __future__ import annotations

import math

DAY_S = 86_400.0
SIZES = (64, 512, 4096)  # nodes that tables show


def between_failures_s(failures_per_node_day: float, nodes: int) -> float:
    """Mean seconds from one failure of a job to the next: any of its nodes ends it."""
    return DAY_S / (failures_per_node_day * nodes)


def best_interval_s(save_s: float, failure_s: float) -> float:
    """Seconds of training from the end of one save to the begin of the next. Daly, Future Generation Computer Systems
    22, 303 (2006), whose first term is Young's, Communications of the ACM 17, 530 (1974).

    save_s: that a save holds the training up; failure_s: mean time between failures. 0 where a save costs nothing."""
    if save_s >= 2 * failure_s:
        return failure_s
    share = save_s / (2 * failure_s)
    return math.sqrt(2 * save_s * failure_s) * (1 + math.sqrt(share) / 3 + share / 9) - save_s


def goodput(interval_s: float, save_s: float, restart_s: float, failure_s: float) -> float:
    """Share of the time that is training which is kept, with a save after every interval_s > 0: Daly 2006, of the wall
    time of a long job. Lost are saves, restarts, what was done since the last save, and failures while restarting.

    restart_s: from the failure until training goes on where it was saved."""
    try:
        return (
            interval_s / failure_s / (math.exp(restart_s / failure_s) * math.expm1((interval_s + save_s) / failure_s))
        )
    except OverflowError:
        return 0.0
