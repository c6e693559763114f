"""MFUs that others published: beside a measured one, of the same GPU and of models of about the same size; and as the
range that a prediction assumes."""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from bringup.kernel.records import Record, known
from bringup.training.records import TrainMetrics

_MODEL = re.compile(r"\b[A-Z]{1,2}\d{2,3}\b")  # of the peak's source: the data sheet of a GPU
ENOUGH = 2  # published values that make a range
SAME_CHIP = {"H200": "H100"}  # with faster memory
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

    @property
    def setting(self) -> tuple[str, bool, bool]:
        """Return its GPU, whether all activations are recomputed, and whether it is compiled."""
        return self.gpu, self.recomputed == "full", self.compiled


@cache
def all_published() -> list[Published]:
    return known("mfu", list[Published])


@dataclass(frozen=True)
class Span:
    """The lowest and the highest MFU, and whose they are."""

    low: float
    high: float
    source: str


def span(peak_source: str, *, recomputed: bool, compiled: bool, without: str = "") -> Span | None:
    """Return what a training on this GPU may reach: the lowest and the highest published for one that recomputes all
    activations or does not, with torch.compile or without. None: nothing is known of this GPU. Where fewer than ENOUGH
    were published, others count too: of the same chip, then of other settings, as much wider as these change it.
    without: a source that is left out."""
    named = _MODEL.search(peak_source)
    spans: list[Span] = []
    count = 0
    for is_full, is_compiled in itertools.product((recomputed, not recomputed), (compiled, not compiled)):
        for gpu in (named[0], SAME_CHIP.get(named[0])) if named is not None else ():
            setting, others = (gpu, is_full, is_compiled), (row for row in all_published() if row.source != without)
            rows = [row for row in others if row.setting == setting]
            if rows and count < ENOUGH:
                count += len(rows)
                spans.append(_as_wanted(rows, recomputed, compiled))
    if not spans:
        return None
    low, high = min(each.low for each in spans), max(each.high for each in spans)
    return Span(low, high, "; ".join(each.source for each in spans))


def _as_wanted(rows: Sequence[Published], recomputed: bool, compiled: bool) -> Span:
    low, high = min(row.mfu for row in rows), max(row.mfu for row in rows)
    gpu, is_full, is_compiled = rows[0].setting
    if is_full != recomputed:  # the forward pass again is a third; larger batches, which it allows, can bring that back
        low, high = (low * 3 / 4, high) if recomputed else (low, high * 4 / 3)
    if is_compiled != compiled:
        least, most = by_compiling(gpu)
        low, high = (low * least, high * most) if compiled else (low / most, high / least)
    shown = f"{'all' if is_full else 'not all'} activations recomputed, {'compiled' if is_compiled else 'eager'}"
    sources = ", ".join(dict.fromkeys(row.source for row in rows))
    return Span(low, high, f"published for {gpu}, {shown} ({sources})")


def by_compiling(gpu: str) -> tuple[float, float]:
    """Return how many times as fast torch.compile made a training, in published pairs that differ in nothing else."""
    pairs = [
        (eager.gpu, compiled.tokens_per_s / eager.tokens_per_s)
        for eager in all_published()
        for compiled in all_published()
        if compiled
        == eager.model_copy(update={"compiled": True, "tokens_per_s": compiled.tokens_per_s, "mfu": compiled.mfu})
        and not eager.compiled
    ]
    factors = [factor for of, factor in pairs if of == gpu] or [factor for _, factor in pairs]
    return min(factors), max(factors)


def beside(metrics: TrainMetrics) -> str | None:
    """Say what was published for this GPU and this size, with full recomputation if this training has it, else without.
    None: the GPU is not known."""
    named = _MODEL.search(metrics.peak_source or "")
    if named is None:
        return None
    gpu = named[0]
    billions, is_full = metrics.observed.parameters / 1e9, bool(metrics.observed.recomputed_layers)
    how = "all activations recomputed" if is_full else "activations kept, or recomputed in part"
    of_setting = [each for each in all_published() if each.setting[:2] == (gpu, is_full)]
    alike = [each for each in of_setting if max(each.billions / billions, billions / each.billions) < SIZES_APART]
    if not alike:
        return f"nothing for {billions:.2g} billion parameters on {gpu}, {how}"
    shares, sizes = _span(100 * each.mfu for each in alike), _span(each.billions for each in alike)
    sources = ", ".join(dict.fromkeys(each.source for each in alike))
    return f"{shares} % for {sizes} billion parameters on {gpu}, {how} ({sources})"


def _span(values: Iterable[float]) -> str:
    ordered = sorted(round(value) for value in values)
    return f"{ordered[0]}" if ordered[0] == ordered[-1] else f"{ordered[0]} to {ordered[-1]}"
