"""What the report of one training reads: its records, its evidence, what discovery said of the cluster."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import fmean

from bringup.kernel.facts.names import shortened
from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.judge import Judged
from bringup.kernel.records import Observation, grouped
from bringup.readers import curve, monitor
from bringup.report import system
from bringup.training.advise import bandwidth
from bringup.training.records import RunArgs, TrainMetrics
from bringup.training.records.folder import records_of

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_COUNTERS = {"_bytes": 1, "_kib": 1024}  # endings of columns that count, in bytes
_NO_MEASURE = ("node", "unix_s", "uuid", monitor.GPU)
_OF_ALL = ("memory_gib", "memory_used_gib", "slowdowns")  # what loading a model takes counts too, and every slowdown


def _words(rows: Mapping[str, list[monitor.Row]], steps: Mapping[str, list[float]]) -> dict[str, str]:
    columns = dict.fromkeys(column for samples in rows.values() for sample in samples for column in sample)
    each = ((subject, row, steps.get(row["node"], (0.0, 0.0))) for subject, of in rows.items() for row in of)
    measured = grouped((subject, row) for subject, row, (begin, end) in each if begin <= float(row["unix_s"]) <= end)
    summaries = {column: _column(column, rows if column in _OF_ALL else measured) for column in columns}
    return {column: text for column, text in summaries.items() if text and column not in _NO_MEASURE}


def _column(column: str, rows: Mapping[str, list[monitor.Row]]) -> str:
    """Sum up a column: `mean 41, most 97 (n0), lowest mean 12 (n1)`; of a counter what was added; of words each one."""
    texts = {subject: [sample[column] for sample in samples if sample.get(column)] for subject, samples in rows.items()}
    values = {subject: [float(text) for text in cells if _NUMBER.fullmatch(text)] for subject, cells in texts.items()}
    values = {subject: numbers for subject, numbers in values.items() if numbers}
    if not values:
        return ", ".join(sorted({text for cells in texts.values() for text in cells}))
    if unit_bytes := next((size for ending, size in _COUNTERS.items() if column.endswith(ending)), 0):
        added = {subject: max(0.0, numbers[-1] - numbers[0]) * unit_bytes for subject, numbers in values.items()}
        most = max(added, key=added.__getitem__)
        whole = _amount(sum(added.values()))
        return whole if len(added) == 1 else f"{whole} in all, most {_amount(added[most])} ({most})"
    most = max(values, key=lambda subject: max(values[subject]))
    mean = fmean(number for numbers in values.values() for number in numbers)
    text = f"mean {mean:.3g}, most {max(values[most]):.3g} ({most})"
    idle = min(values, key=lambda subject: fmean(values[subject]))
    lowest = f"{fmean(values[idle]):.3g}"
    return text if lowest == f"{mean:.3g}" else f"{text}, lowest mean {lowest} ({idle})"


def _amount(size: float) -> str:
    """Bytes in words: `0.2 kB`, `3.1 MB`, `2 GB`."""
    unit, factor = next((each for each in (("GB", 1e9), ("MB", 1e6)) if size >= each[1] / 10), ("kB", 1e3))
    return f"{size / factor:.3g} {unit}"


@dataclass(frozen=True)
class Trained:
    judged: Judged
    args: RunArgs
    metrics: TrainMetrics
    facts: Mapping[str, str] = field(default_factory=dict)  # of the cluster, by what they say: report/system.py
    curve: bandwidth.Measured | None = None  # of the collectives, where the same report has them

    @cached_property
    def sampled(self) -> dict[str, dict[str, str]]:
        """Return `nodes` and `gpus`: column -> words, of the measured steps (while it starts, nothing is busy) or of
        the whole job (_OF_ALL); empty: no monitor ran beside the training."""
        samples, steps = monitor.of_run(self.judged.files), self.metrics.window_unix_s
        return {"nodes": _words(samples.nodes, steps), "gpus": _words(samples.gpus, steps)}

    def seen(self, quantity: str) -> list[Observation]:
        """Return observations of this quantity that have a value."""
        return [s for s in self.judged.observations if s.quantity == quantity and s.value is not None]

    def worst(self, quantity: str) -> str | None:
        """Return the largest value observed, with its place."""
        seen = [(float(s.value), s.unit, s.subject) for s in self.seen(quantity) if is_number(s.value)]
        if not seen:
            return None
        value, unit, subject = max(seen)
        return f"{words(value)}{'' if unit in ('ratio', 'count') else f' {unit}'} ({subject})"


def trained(judged: Sequence[Judged]) -> list[Trained]:
    """Return the trainings among these runs that finished, fewest ranks first."""
    if all(run.training is None for run in judged):
        return []
    facts = {fact.what: f"{fact.value} ({fact.scope})" if fact.others else fact.value for fact in system.facts(judged)}
    alone = [run for run in judged if run.training is None and curve.curves(run.observations)]
    measured = bandwidth.measured(alone) if alone else None
    runs = [Trained(run, read.args, read.metrics, facts, measured) for run in judged if (read := records_of(run))]
    return sorted(runs, key=lambda run: run.metrics.world_size)


def words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, list):
        return shortened([words(entry) for entry in value])
    return str(value)
