"""Training runs that are comparable: their evidence holds, and none is there twice."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from bringup import results
from bringup.errors import NotComparable, RecordError
from bringup.judge import Judged, judge_folder
from bringup.plan.phases import PHASES
from bringup.records import Outcome, Run, RunArgs, TrainMetrics

ENVIRONMENT = ("torch", "transformers", "accelerate")
"""Arguments in which two sides may differ: what they run on is what a regression check is about."""
REPEATED = frozenset({"schema_version", "timeout_s", "profiled_steps", *ENVIRONMENT})
"""Runs that differ in these arguments alone are repetitions of each other."""


@dataclass(frozen=True)
class Entry:
    """One finished training run."""

    folder: Path
    run: Run
    outcome: Outcome
    args: RunArgs
    metrics: TrainMetrics

    @property
    def steps(self) -> list[float]:
        """Seconds of each step of the steady window, which ends with its last rank."""
        return self.metrics.steps_s


def load(folder: Path) -> Entry:
    """Judged from its evidence. Raises NotComparable when that does not hold, RecordError without a training."""
    return entry(judge_folder(folder))


def load_all(folders: Iterable[Path]) -> list[Entry]:
    """Several runs. Raises NotComparable when one run is there twice."""
    entries = [load(folder) for folder in folders]
    refuse_repeated(entries)
    return entries


def entry(judged: Judged) -> Entry:
    folder = judged.folder
    if not PHASES[judged.run.phase].is_training:
        raise RecordError(f"{folder}: a run of {judged.run.phase}; give folders of training runs (training/results/…)")
    if judged.training is None:
        raise RecordError(f"{folder}: no valid {results.METRICS}: this training did not finish; leave it out")
    if judged.objection is not None:
        raise NotComparable(f"{folder}: {judged.objection}; a run is compared only when its evidence holds")
    return Entry(folder, judged.run, judged.verdicts.outcome, judged.training.args, judged.training.metrics)


def refuse_repeated(entries: Sequence[Entry]) -> None:
    """Raises NotComparable."""
    results.refuse_repeated([(entry.folder, entry.run) for entry in entries])
