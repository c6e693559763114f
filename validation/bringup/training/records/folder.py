"""The records of a run's training, each file read once."""

from functools import cached_property
from pathlib import Path
from typing import TypeVar, cast

from bringup.kernel.errors import RecordError
from bringup.kernel.judge import Judged
from bringup.kernel.records import Record, read_record
from bringup.kernel.results import METRICS, RUN_ARGS
from bringup.training.records import REFERENCE_METRICS, RunArgs, TrainMetrics


class TrainingRecords:
    """What a training run recorded, each file read once. `args` and `metrics` raise RecordError."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def args(self) -> RunArgs:
        if isinstance(self._args, RecordError):
            raise self._args
        return self._args

    @property
    def metrics(self) -> TrainMetrics:
        if isinstance(self._metrics, RecordError):
            raise self._metrics
        return self._metrics

    @property
    def errors(self) -> list[RecordError]:
        return [record for record in (self._args, self._metrics) if isinstance(record, RecordError)]

    @property
    def are_whole(self) -> bool:
        return not self.errors

    @property
    def steps(self) -> dict[str, tuple[float, float]] | None:
        """Return node -> begin and end of the measured steps, unix s, its own clock. None: none, or it did not end."""
        if not self.are_whole:
            return None
        return {node: (begin, end) for node, (begin, end) in self.metrics.window_unix_s.items()}

    @cached_property
    def _args(self) -> RunArgs | RecordError:
        return _read(self.folder / RUN_ARGS, RunArgs)

    @cached_property
    def _metrics(self) -> TrainMetrics | RecordError:
        return _read(self.folder / METRICS, TrainMetrics)

    @cached_property
    def reference_metrics(self) -> TrainMetrics | RecordError | None:
        """Return the metrics of the one-GPU run that was kept with this one; None where there was none."""
        path = self.folder / REFERENCE_METRICS
        return _read(path, TrainMetrics) if path.is_file() else None


R = TypeVar("R", bound=Record)


def _read(path: Path, kind: type[R]) -> R | RecordError:
    try:
        return read_record(path, kind)
    except RecordError as error:
        return error


def records_of(judged: Judged) -> TrainingRecords | None:
    """Return what its training recorded. None: it is not of a training, or the training did not finish."""
    return cast(TrainingRecords | None, judged.training)
