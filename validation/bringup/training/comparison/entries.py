"""Training runs that are comparable: their evidence holds, or they have none and are not judged; none is there
twice. And their numbers that are compared: known/measures.yaml."""

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bringup.kernel import results
from bringup.kernel.characters import many
from bringup.kernel.errors import NotComparable, RecordError
from bringup.kernel.judge import Judged, judge_folder, stops
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.profile import Profile
from bringup.kernel.records import Outcome, Record, Run, known, read_record
from bringup.training.records import RunArgs, TrainMetrics, summary_of
from bringup.training.records.folder import records_of

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


@dataclass(frozen=True)
class Entry:
    """One finished training run."""

    folder: Path
    run: Run | None  # None: only its records are there
    outcome: Outcome | None  # None: not judged
    args: RunArgs
    metrics: TrainMetrics
    not_judged: str | None = None  # why not: what of it is not there
    failed: bool = False  # by a gate without which its numbers mean nothing: a slow run has not failed so

    @property
    def of_cluster(self) -> str:
        """Return its cluster, in words; empty where that is not known."""
        return "" if self.run is None or self.run.cluster is None else str(self.run.of_cluster)

    @property
    def opened_at(self) -> str:
        """Return when it began, UTC; empty where only its records are there."""
        return "" if self.run is None else self.run.opened_at


def load(folder: Path, profile: Profile | None = None) -> Entry:
    """Judge a run by its evidence, against its own copy of the profile or `profile`; or take it unjudged, where only
    its records are there. Raises NotComparable when evidence does not hold, RecordError without a training."""
    why = _records_alone(folder)
    return entry(judge_folder(folder, profile)) if why is None else _not_judged(folder, why)


def load_all(folders: Iterable[Path], profile: Profile | None = None) -> list[Entry]:
    """Load several runs. Raises NotComparable when one run is there twice."""
    entries = [load(folder, profile) for folder in folders]
    refuse_repeated(entries)
    return entries


def _records_alone(folder: Path) -> str | None:
    """Say what is missing where only records of a training can be read: of a container, or from a colleague. None: it
    is to be judged."""
    if not (folder / results.METRICS).is_file():
        return None
    lacking = [name for name in (results.RUN, results.CLOSED, "raw") if not os.path.lexists(folder / name)]
    alone = results.RUN in lacking or len(lacking) == 2
    return f"without {', '.join(lacking)}" if alone else None


def _not_judged(folder: Path, why: str) -> Entry:
    """Read records alone. Raises RecordError if they cannot be read, NotComparable where they contradict each other."""
    args = read_record(folder / results.RUN_ARGS, RunArgs)
    metrics = read_record(folder / results.METRICS, TrainMetrics)
    head = metrics.summary
    if head is not None and head != summary_of(args, metrics, (head.scaling, head.scaling_reason)):
        why = f"the summary of {results.METRICS} is not what its other fields and {results.RUN_ARGS} say"
        raise NotComparable(f"{folder}: {why}: one of them was changed, or they are of two runs")
    if (args.world_size, args.strategy) != (metrics.world_size, metrics.observed.kind):
        asked = f"{results.RUN_ARGS} is of {args.strategy} on {many(args.world_size, 'rank')}"
        ran = f"{results.METRICS} of {metrics.observed.kind} on {metrics.world_size}"
        raise NotComparable(f"{folder}: {asked}, {ran}: they are of two runs")
    return Entry(folder.absolute(), None, None, args, metrics, why)


def entry(judged: Judged) -> Entry:
    folder = judged.folder
    if not PHASES[judged.run.phase].is_training:
        raise RecordError(f"{folder}: a run of {judged.run.phase}; give folders of training runs (training/results/…)")
    if (records := records_of(judged)) is None:
        raise RecordError(f"{folder}: no valid {results.METRICS}: this training did not finish; leave it out")
    if judged.objection is not None:
        raise NotComparable(f"{folder}: {judged.objection}; a run is compared only when its evidence holds")
    failed = any(each.outcome is Outcome.FAIL and stops(each) for each in judged.verdicts.verdicts)
    args, metrics = records.args, records.metrics
    return Entry(folder, judged.run, judged.verdicts.outcome, args, metrics, failed=failed)


def refuse_repeated(entries: Sequence[Entry]) -> None:
    """Raise NotComparable for a run that is there twice."""
    refuse_copies([(entry.folder, entry.run) for entry in entries if entry.run is not None])
    for index, entry in enumerate(entries):
        for other in entries[:index]:
            if None in (entry.run, other.run) and entry.metrics == other.metrics:
                both = f"{other.folder} and {entry.folder}"
                raise NotComparable(f"{both} hold the same {results.METRICS}: a run counts once")


def refuse_copies(runs: Iterable[tuple[Path, Run]]) -> None:
    """Refuse two copies of one run: a copy is not a repetition and shows no spread. Raises NotComparable."""
    known: list[tuple[Path, Run]] = []
    for folder, run in runs:
        for earlier in (there for there, other in known if other == run):
            where = "named twice" if earlier.resolve() == folder.resolve() else f"in {earlier} and in {folder}"
            raise NotComparable(f"run {run.name}, opened {run.opened_at}, is {where}: a run counts once")
        known.append((folder, run))
