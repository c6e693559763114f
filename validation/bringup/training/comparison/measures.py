"""What is compared, and which changes count: known/measures.yaml."""

from __future__ import annotations

from typing import Any, Literal

from bringup.kernel.records import Record, known
from bringup.training.records import TrainMetrics

# of `bringup history`, whatever the measure: its runs are of different days
OVER_TIME_IGNORE, OVER_TIME_EXCLUDE = 0.02, 0.10


class Measure(Record):
    """A number of a training."""

    name: str
    unit: str
    better: Literal[1, -1]
    ignore: float
    exclude: float
    field: str
    resolution: float = 0.0
    steps: bool = False
    per: int = 1

    def read(self, metrics: TrainMetrics) -> float | None:
        """Read the measure. None where it was not recorded."""
        value: Any = metrics
        for name in self.field.split("."):
            value = None if value is None else getattr(value, name)
        return None if value is None else float(value) / self.per


MEASURES = known("measures", list[Measure])
TOKENS_PER_S, MFU = MEASURES[:2]
