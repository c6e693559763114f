"""How often a training saves a checkpoint, so that failures and saves cost least together. Computed, not measured."""

from __future__ import annotations

from collections.abc import Sequence

from bringup.errors import UsageError
from bringup.formulae import goodput
from bringup.judge import Judged
from bringup.records import SaveInterval


def best(
    failures_per_node_day: float | None,
    save_s: float | None,
    restart_s: float | None,
    nodes: int,
    runs: Sequence[Judged] = (),
) -> SaveInterval | None:
    """None: no rate of failures was given. The cost of a save is the given one, or that of the last run that wrote one.
    Raises UsageError."""
    if failures_per_node_day is None:
        if save_s is not None or restart_s is not None:
            raise UsageError("--save-s and --restart-s mean something with --failures-per-node-day")
        return None
    source = "given"
    for run in runs if save_s is None else ():
        written = run.training.metrics.checkpoint if run.training is not None else None
        if written is not None and written.write_s is not None:
            # the training waits for both
            save_s, source = written.write_s + (written.checksum_s or 0), f"measured by {run.folder.name}"
    if save_s is None or restart_s is None:
        missing = "--restart-s" if save_s is not None else "--save-s, or --from a training run that wrote a checkpoint"
        raise UsageError(f"how often to save a checkpoint depends on {missing}")
    failure_s = goodput.between_failures_s(failures_per_node_day, nodes)
    interval_s = goodput.best_interval_s(save_s, failure_s)
    return SaveInterval(
        failures_per_node_day=failures_per_node_day,
        failure_s=failure_s,
        save_s=save_s,
        save_source=source,
        restart_s=restart_s,
        interval_s=interval_s,
        goodput=goodput.goodput(interval_s, save_s, restart_s, failure_s),
    )
