"""What is compared, and which changes count."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bringup.records import TrainMetrics

# of `bringup history`, whatever the measure: its runs are of different days
OVER_TIME_IGNORE, OVER_TIME_EXCLUDE = 0.02, 0.10


@dataclass(frozen=True)
class Measure:
    """A number of a training. ignore, exclude: relative changes, see noise.conclusion."""

    name: str
    unit: str
    better: int  # +1: more is better, -1: less is
    ignore: float
    exclude: float
    field: str  # of metrics.json
    resolution: float = 0.0  # smaller values count as this: 5 ms more of 5 ms is not a regression of a start-up
    steps: bool = False  # whether the spread of the steps inside a run bounds its noise from below
    per: int = 1  # of the field's units

    def read(self, metrics: TrainMetrics) -> float | None:
        """Read the measure. None where it was not recorded."""
        value: Any = metrics
        for name in self.field.split("."):
            value = None if value is None else getattr(value, name)
        return None if value is None else float(value) / self.per


TOKENS_PER_S = Measure("tokens per second", "tokens/s", 1, 0.01, 0.05, "tokens_per_s", steps=True)
MFU = Measure("MFU", "share", 1, 0.01, 0.05, "mfu", steps=True)
MEASURES = (
    TOKENS_PER_S,
    MFU,
    Measure("step p50", "s", -1, 0.01, 0.05, "step_time_s.p50", steps=True),
    Measure("step p95", "s", -1, 0.03, 0.15, "step_time_s.p95"),
    Measure("host memory", "GiB", -1, 0.02, 0.10, "memory.host_rss_gib", 0.1),
    Measure("device memory allocated", "GiB", -1, 0.02, 0.05, "memory.device_allocated_gib", 0.1),
    Measure("device memory reserved", "GiB", -1, 0.02, 0.10, "memory.device_reserved_gib", 0.1),
    Measure("memory of the states", "MiB", -1, 0.01, 0.05, "memory_check.states_measured_bytes", 0.1, per=2**20),
    Measure("checkpoint write", "GiB/s", 1, 0.10, 0.30, "checkpoint.write_gib_per_s"),
    Measure("checkpoint read", "GiB/s", 1, 0.10, 0.30, "checkpoint.read_gib_per_s"),
    # start-ups read from disks and wait for others: noisy, and not worth a second
    Measure("start-up: import", "s", -1, 0.10, 0.50, "startup.import_s", 1.0),
    Measure("start-up: process group", "s", -1, 0.10, 0.50, "startup.process_group_s", 1.0),
    Measure("start-up: first collective", "s", -1, 0.10, 0.50, "startup.first_collective_s", 1.0),
    Measure("start-up: load", "s", -1, 0.10, 0.50, "startup.load_s", 1.0),
    Measure("start-up: first step", "s", -1, 0.10, 0.50, "startup.first_step_s", 1.0),
)
