"""MFUs that others published, beside a measured one: of the same GPU, and of models of about the same size."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import TypeAdapter

from bringup.records import Record, TrainMetrics

FILE = Path(__file__).resolve().parents[2] / "known/mfu.yaml"
_MODEL = re.compile(r"\b[A-Z]{1,2}\d{2,3}\b")  # of the peak's source: the data sheet of a GPU
SIZES_APART = 1.6  # models of 7 and of 8 billion parameters stand beside each other, of 7 and of 13 do not


class Published(Record):
    source: str
    gpu: str
    gpus: int
    billions: float
    tokens: int  # of a row
    rows: int  # of a GPU
    recomputed: Literal["none", "selective", "full"]
    compiled: bool = False
    tokens_per_s: float  # of a GPU
    mfu: float


@cache
def all_published() -> list[Published]:
    return TypeAdapter(list[Published]).validate_python(yaml.safe_load(FILE.read_text()))


def beside(metrics: TrainMetrics) -> str | None:
    """Say what was published for this GPU and this size, with full recomputation if this training has it, else without.
    None: the GPU is not known."""
    named = _MODEL.search(metrics.peak_source or "")
    if named is None:
        return None
    gpu = named[0]
    billions, is_full = metrics.observed.parameters / 1e9, bool(metrics.observed.recomputed_layers)
    how = "all activations recomputed" if is_full else "activations kept, or recomputed in part"
    alike = [
        each
        for each in all_published()
        if each.gpu == gpu
        and (each.recomputed == "full") == is_full
        and max(each.billions / billions, billions / each.billions) < SIZES_APART
    ]
    if not alike:
        return f"nothing for {billions:.2g} billion parameters on {gpu}, {how}"
    shares, sizes = _span(100 * each.mfu for each in alike), _span(each.billions for each in alike)
    sources = ", ".join(dict.fromkeys(each.source for each in alike))
    return f"{shares} % for {sizes} billion parameters on {gpu}, {how} ({sources})"


def _span(values: Iterable[float]) -> str:
    ordered = sorted(round(value) for value in values)
    return f"{ordered[0]}" if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"
