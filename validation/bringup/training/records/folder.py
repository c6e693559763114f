"""The records of a run's training, each file read once."""

from functools import cached_property
from typing import TypeVar, cast

from bringup.kernel.errors import RecordError
from bringup.kernel.judge import Judged
from bringup.kernel.records import Record
from bringup.kernel.results import METRICS, RUN_ARGS
from bringup.kernel.run_folder import RunFolder
from bringup.training.records import REFERENCE_ARGS, REFERENCE_METRICS, RunArgs, TrainMetrics

R = TypeVar("R", bound=Record)


class TrainingRecords:
    """What a training run recorded, each file read once. `args` and `metrics` raise RecordError."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._args, self._metrics = self._read(RUN_ARGS, RunArgs), self._read(METRICS, TrainMetrics)

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
    def problems(self) -> list[str]:
        """Say why records cannot be read, with the names that files have within the folder."""
        return [self.within(record) for record in (self._args, self._metrics) if isinstance(record, RecordError)]

    def within(self, error: RecordError) -> str:
        return self._folder.within(error)

    @property
    def are_whole(self) -> bool:
        return not self.problems

    @property
    def steps(self) -> dict[str, tuple[float, float]] | None:
        """Return node -> begin and end of the measured steps, unix s, its own clock. None: none, or it did not end."""
        if not self.are_whole:
            return None
        return {node: (begin, end) for node, (begin, end) in self.metrics.window_unix_s.items()}

    @cached_property
    def reference_metrics(self) -> TrainMetrics | RecordError | None:
        """Return the metrics of the one-GPU run that was kept with this one; None where there was none."""
        return self._read(REFERENCE_METRICS, TrainMetrics) if self._folder.is_there(REFERENCE_METRICS) else None

    @property
    def reference_args(self) -> RunArgs:
        """Return the arguments of that run. Raises RecordError."""
        return self._folder.record(REFERENCE_ARGS, RunArgs)

    def _read(self, name: str, kind: type[R]) -> R | RecordError:
        try:
            return self._folder.record(name, kind)
        except RecordError as error:
            return error


def records_of(judged: Judged) -> TrainingRecords | None:
    """Return what its training recorded. None: it is not of a training, or the training did not finish."""
    return cast(TrainingRecords | None, judged.training)
