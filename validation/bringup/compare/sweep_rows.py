"""The table of a sweep: each variant against the base, and whether the difference is more than noise.

Runs of a variant are repetitions, and noise.conclusion decides, but a variant is within the noise only where an
improvement that matters is excluded too. With one run on each side nothing repeats: then a difference that the steps
inside the runs explain is noise, and a larger one tells nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Literal, NamedTuple

from bringup.compare import noise
from bringup.kernel.plan.phases import NODES
from bringup.kernel.records import Outcome, worst
from bringup.report.campaigns import SweepRow
from bringup.training.comparison.entries import TOKENS_PER_S, Entry
from bringup.training.comparison.sidebyside import number, row_of
from bringup.training.fields import Settings, as_requested, label
from bringup.training.records import variant_of

Conclusion = Literal["faster", "slower", "within noise", "cannot tell"]


class Variant(NamedTuple):
    """What is known of one variant: its runs that finished, and why others did not."""

    settings: Settings
    entries: Sequence[Entry]
    failures: Sequence[tuple[Outcome, str]] = ()

    @property
    def is_reached(self) -> bool:
        return bool(self.entries or self.failures)


def rows(variants: Sequence[Variant]) -> list[SweepRow]:
    """Make rows. variants: the base first."""
    base = variants[0].entries
    confidence = noise.shared_confidence(sum(1 for variant in variants[1:] if variant.entries and base))
    return [_row(variants[0], [], confidence), *(_row(variant, base, confidence) for variant in variants[1:])]


def _row(variant: Variant, base: Sequence[Entry], confidence: float) -> SweepRow:
    entries = variant.entries
    speed = _median([entry.metrics.tokens_per_s for entry in entries])
    change, low, high, words = _difference(base, entries, confidence) if base and entries else (None, None, None, None)
    first = entries[0] if entries else None
    gaps = [row_of(entry, base[0], "") for entry in entries] if base else []
    disagreeing = next((row for row in gaps if not row.agrees), None)
    per_rank = _median([entry.metrics.tokens_per_s_per_rank for entry in entries])
    of_base = _median([entry.metrics.tokens_per_s_per_rank for entry in base or entries])
    failures = list(variant.failures)
    if disagreeing is not None:
        failures.append((Outcome.FAIL, f"loss gap {disagreeing.gap_in_words}: its speed means nothing yet"))
    device = _median([entry.metrics.memory.device_allocated_gib for entry in entries])
    host = _median([entry.metrics.memory.host_rss_gib for entry in entries])
    return SweepRow(
        label=label(variant.settings),
        ran=None if first is None else variant_of(first.args, first.metrics.observed),
        runs=len(entries),
        tokens_per_s=speed,
        change=change,
        low=low,
        high=high,
        against_base=words,
        efficiency=per_rank / of_base if NODES in variant.settings and per_rank and of_base else None,
        step_p50_s=_median([entry.metrics.step_time_s.p50 for entry in entries]),
        peak_gib=host if device is None else device,
        peak_of=None if first is None else "host" if device is None else "device",
        mfu=_median([entry.metrics.mfu for entry in entries]),
        loss_gap=max(gaps, key=lambda row: row.gap or 0.0).gap_in_words if gaps else None,
        outcome=worst([*(outcome for outcome, _ in failures), *([Outcome.PASS] if entries else [])]),
        failed="; ".join(dict.fromkeys(why for _, why in failures)) or None,
    )


def _difference(
    base: Sequence[Entry], other: Sequence[Entry], confidence: float
) -> tuple[float, float | None, float | None, Conclusion]:
    """Return (relative change of tokens/s, its bounds, what it is). Without repetitions there are no bounds."""
    before, after = ([noise.Timed(run.opened_at, run.metrics.tokens_per_s) for run in side] for side in (base, other))
    fit = noise.fit(before, after, noise.floor_of(entry.metrics.steps_s for entry in (*base, *other)))
    if fit is None:
        return median(run.value for run in after) / median(run.value for run in before) - 1, None, None, "cannot tell"
    interval = noise.interval(fit, confidence)
    conclusion = noise.conclusion(interval, TOKENS_PER_S.better, TOKENS_PER_S.ignore, TOKENS_PER_S.exclude)
    words: Conclusion = "cannot tell"
    if conclusion in ("improvement", "regression"):
        words = "faster" if conclusion == "improvement" else "slower"
    elif conclusion == "within noise" and interval.high < TOKENS_PER_S.exclude:
        words = "within noise"
    return interval.change, interval.low, interval.high, words


def not_applied(settings: Mapping[str, str], entry: Entry) -> str | None:
    """Say where a run was not what was requested; None: it was."""
    for field, requested in settings.items():
        observed = _of_run(entry, field)
        if observed != requested:
            reasons = [state for what, state in entry.args.tuning.items() if field == "compile" and field in what]
            why = f" ({reasons[0]})" if reasons else ""
            return f"{field}: {requested} was requested, the run had {observed}{why}"
    return None


def is_base(settings: Mapping[str, str], base: Entry) -> bool:
    """Say whether the base has all these values already."""
    return bool(settings) and all(_of_run(base, field) == value for field, value in settings.items())


def _of_run(entry: Entry, field: str) -> str:
    if field == NODES:
        return "unknown" if entry.run is None else str(len(entry.run.nodes))
    return as_requested(getattr(entry.args, field))


def _median(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def table(rows: Sequence[SweepRow]) -> tuple[list[str], list[list[str]]]:
    """Return header and cells."""
    columns: dict[str, Callable[[SweepRow], str]] = {
        "variant": lambda row: row.label,
        "ran as": lambda row: row.ran or "",
        "runs": lambda row: str(row.runs),
        "tokens/s": lambda row: number(row.tokens_per_s, "{:,.0f}"),
        "against the base": _change,
        "tokens/s of a rank": lambda row: number(row.efficiency, "{:.1%}"),
        "verdict": lambda row: row.against_base or "",
        "step p50 ms": lambda row: number(None if row.step_p50_s is None else row.step_p50_s * 1e3, "{:.1f}"),
        "peak GiB": lambda row: number(row.peak_gib, "{:.2f} " + (row.peak_of or "")).strip(),
        "MFU": lambda row: number(row.mfu, "{:.1%}", "" if row.tokens_per_s is None else "unknown"),
        "loss gap": lambda row: row.loss_gap or "",
    }
    if not any(row.efficiency for row in rows):
        del columns["tokens/s of a rank"]
    return list(columns), [[text(row) for text in columns.values()] for row in rows]


def _change(row: SweepRow) -> str:
    if row.low is None or row.high is None:
        return number(row.change, "{:+.1%}")
    return f"{row.change:+.1%} [{row.low:+.1%}, {row.high:+.1%}]".replace("%", " %")
