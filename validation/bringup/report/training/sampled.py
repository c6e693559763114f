"""What the monitor sampled while a training ran, in one line per column."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import fmean

from bringup.evidence import monitor
from bringup.judge import Judged

_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")
_COUNTERS = {"_bytes": 1, "_kib": 1024}  # endings of columns that count, in bytes
_NO_MEASURE = ("node", "unix_s", "uuid", monitor.GPU)


@dataclass(frozen=True)
class Sampled:
    """Column -> words; empty: no monitor ran beside the training."""

    nodes: Mapping[str, str] = field(default_factory=dict)
    gpus: Mapping[str, str] = field(default_factory=dict)


def sampled(judged: Judged) -> Sampled:
    samples = monitor.of_run(judged.folder)
    return Sampled(_words(samples.nodes), _words(samples.gpus))


def _words(rows: Mapping[str, list[monitor.Row]]) -> dict[str, str]:
    columns = dict.fromkeys(column for samples in rows.values() for sample in samples for column in sample)
    summaries = {column: _column(column, rows) for column in columns if column not in _NO_MEASURE}
    return {column: text for column, text in summaries.items() if text}


def _column(column: str, rows: Mapping[str, list[monitor.Row]]) -> str:
    """`mean 41, most 97 (n0)`; of a counter what was added: `3.2e+09 in all, most 2e+09 (n0)`; of words, the words."""
    texts = {subject: [sample[column] for sample in samples if sample.get(column)] for subject, samples in rows.items()}
    values = {subject: [float(text) for text in cells if _NUMBER.fullmatch(text)] for subject, cells in texts.items()}
    values = {subject: numbers for subject, numbers in values.items() if numbers}
    if not values:
        return ", ".join(sorted({text for cells in texts.values() for text in cells}))
    if unit_bytes := next((size for ending, size in _COUNTERS.items() if column.endswith(ending)), 0):
        added = {subject: max(0.0, numbers[-1] - numbers[0]) * unit_bytes for subject, numbers in values.items()}
        most = max(added, key=added.__getitem__)
        return f"{sum(added.values()) / 1e9:.3g} GB in all, most {added[most] / 1e9:.3g} GB ({most})"
    most = max(values, key=lambda subject: max(values[subject]))
    mean = fmean(number for numbers in values.values() for number in numbers)
    return f"mean {mean:.3g}, most {max(values[most]):.3g} ({most})"
