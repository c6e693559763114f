"""Training runs side by side. Unlike runs are refused with the field that differs; losses are compared before speeds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from bringup.checks.training.measured import differing_fields
from bringup.errors import NotComparable, RecordError
from bringup.records import RunArgs, TrainMetrics, read_record
from bringup.results import METRICS, RUN_ARGS

LOSS_TOLERANCE_NATS = {"float32": 1e-5, "bfloat16": 2e-2}
"""fp32: strategies differ by rounding order only (seen: 1.4e-6 over 20 steps). bf16: one last place of a loss near 6."""


@dataclass(frozen=True)
class Entry:
    folder: Path
    args: RunArgs
    metrics: TrainMetrics


def load(folder: Path) -> Entry:
    """Raises RecordError with the file that is missing or not valid."""
    if not (folder / METRICS).is_file():
        raise RecordError(f"{folder}: no {METRICS}; give folders of finished training runs (training/results/…)")
    return Entry(folder, read_record(folder / RUN_ARGS, RunArgs), read_record(folder / METRICS, TrainMetrics))


def steps_of(entry: Entry) -> list[float]:
    """Seconds of each step of the steady window, which ends with its last rank; empty where a run has not recorded them."""
    return entry.metrics.steps_s or []


HEADER = (
    "run",
    "strategy",
    "ranks",
    "hosts",
    "tokens/s",
    "tokens/s/rank",
    "scaling",
    "step p50 ms",
    "step p95 ms",
    "host GiB",
    "device GiB",
    "loss first → last",
    "loss gap",
)


def table(folders: list[Path]) -> tuple[list[str], list[list[str]], str]:
    """Header, rows, and a note on what the columns are relative to. Raises RecordError or NotComparable.

    The base is the run with the fewest ranks: scaling = tokens/s/rank over the base's, loss gap = largest difference per step.
    """
    entries = [load(folder) for folder in folders]
    base = min(entries, key=lambda entry: entry.metrics.world_size)
    for entry in entries:
        differing = differing_fields(base.args, entry.args)
        if differing:
            raise NotComparable(
                f"{base.folder.name} and {entry.folder.name} are not comparable: {'; '.join(differing)}"
            )
        if len(entry.metrics.loss) != len(base.metrics.loss):
            raise NotComparable(
                f"{base.folder.name} and {entry.folder.name} are not comparable: "
                f"{len(base.metrics.loss)} vs {len(entry.metrics.loss)} losses"
            )
    tolerance = LOSS_TOLERANCE_NATS.get(base.args.compute_dtype)
    entries.sort(key=lambda entry: entry.metrics.world_size)
    names = short_names([entry.folder.name for entry in entries])
    rows = [_row(entry, base, tolerance, name) for entry, name in zip(entries, names, strict=True)]
    kept = (
        "unknown dtype, no tolerance"
        if tolerance is None
        else f"agree within {tolerance:g} ({base.args.compute_dtype})"
    )
    note = f"scaling and loss gap: against {base.folder.name}; losses must {kept}; tokens/s: all ranks, steady window"
    return list(HEADER), rows, note


def short_names(names: list[str]) -> list[str]:
    """The stems alone where all runs are of one playbook: it is in every name."""
    parts = [name.partition("-") for name in names]
    one_playbook = len({rest for _, _, rest in parts}) == 1 and len({stem for stem, _, _ in parts}) == len(names)
    return [stem for stem, _, _ in parts] if one_playbook else names


def _row(entry: Entry, base: Entry, tolerance: float | None, name: str) -> list[str]:
    metrics = entry.metrics
    gap = max((abs(a - b) for a, b in zip(metrics.loss, base.metrics.loss, strict=True)), default=None)
    agreed = (
        "no losses"
        if gap is None
        else f"{gap:.1e}" + ("" if tolerance is not None and gap <= tolerance else " DISAGREES")
    )
    device = metrics.memory.device_allocated_gib
    return [
        name,
        metrics.observed.kind,
        str(metrics.world_size),
        str(len(set(metrics.observed.hosts))),
        f"{metrics.tokens_per_s:,.0f}",
        f"{metrics.tokens_per_s_per_rank:,.0f}",
        f"{metrics.tokens_per_s_per_rank / base.metrics.tokens_per_s_per_rank:.2f}",
        f"{metrics.step_time_s.p50 * 1e3:.1f}",
        f"{metrics.step_time_s.p95 * 1e3:.1f}",
        f"{metrics.memory.host_rss_gib:.2f}",
        "none" if device is None else f"{device:.2f}",
        f"{metrics.loss[0]:.4f} → {metrics.loss[-1]:.4f}" if metrics.loss else "none",
        agreed,
    ]


def as_text(header: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in [header, *rows]
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def disagreements(rows: list[list[str]]) -> list[str]:
    """Names of runs whose losses do not agree with the base."""
    return [row[0] for row in rows if row[-1].endswith("DISAGREES") or row[-1] == "no losses"]
