"""How often a training saves a checkpoint, so that failures and saves cost least together. Computed, not measured:
failures are Poisson events."""

import math
from collections.abc import Sequence

from bringup.kernel.errors import UsageError
from bringup.kernel.judge import Judged
from bringup.training.records import SaveInterval
from bringup.training.records.folder import records_of

DAY_S = 86_400.0
SIZES = (64, 512, 4096)  # nodes that tables show


def best(
    failures_per_node_day: float | None,
    save_s: float | None,
    restart_s: float | None,
    nodes: int,
    runs: Sequence[Judged] = (),
) -> SaveInterval | None:
    """Return the best interval. None: no rate of failures was given. The cost of a save is the given one, or that of
    the last run that wrote one. Raises UsageError."""
    if failures_per_node_day is None:
        if save_s is not None or restart_s is not None:
            raise UsageError("--save-s and --restart-s mean something with --failures-per-node-day")
        return None
    source = "given"
    for run in runs if save_s is None else ():
        records = records_of(run)
        written = records.metrics.checkpoint if records is not None else None
        if written is not None and written.write_s is not None:
            # the training waits for both
            save_s, source = written.write_s + (written.checksum_s or 0), f"measured by {run.folder.name}"
    if save_s is None or restart_s is None:
        missing = "--restart-s" if save_s is not None else "--save-s, or --from a training run that wrote a checkpoint"
        raise UsageError(f"how often to save a checkpoint depends on {missing}")
    failure_s = between_failures_s(failures_per_node_day, nodes)
    interval_s = best_interval_s(save_s, failure_s)
    return SaveInterval(
        failures_per_node_day=failures_per_node_day,
        failure_s=failure_s,
        save_s=save_s,
        save_source=source,
        restart_s=restart_s,
        interval_s=interval_s,
        goodput=goodput(interval_s, save_s, restart_s, failure_s),
    )


def between_failures_s(failures_per_node_day: float, nodes: int) -> float:
    """Return mean seconds from one failure of a job to the next: any of its nodes ends it."""
    return DAY_S / (failures_per_node_day * nodes)


def best_interval_s(save_s: float, failure_s: float) -> float:
    """Return seconds of training from the end of one save to the begin of the next. Daly, Future Generation Computer
    Systems 22, 303 (2006), whose first term is Young's, Communications of the ACM 17, 530 (1974).

    save_s: that a save holds the training up; failure_s: mean time between failures. 0 where a save costs nothing."""
    if save_s >= 2 * failure_s:
        return failure_s
    share = save_s / (2 * failure_s)
    return math.sqrt(2 * save_s * failure_s) * (1 + math.sqrt(share) / 3 + share / 9) - save_s


def goodput(interval_s: float, save_s: float, restart_s: float, failure_s: float) -> float:
    """Return the share of training time which is kept, with a save after every interval_s > 0: Daly 2006, of the wall
    time of a long job. Lost are saves, restarts, what was done since the last save, and failures while restarting.

    restart_s: from the failure until training goes on where it was saved."""
    try:
        lost = math.exp(restart_s / failure_s) * math.expm1((interval_s + save_s) / failure_s)
    except OverflowError:
        return 0.0
    return interval_s / failure_s / lost
