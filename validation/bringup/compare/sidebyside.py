"""Training runs side by side. Unlike runs are refused with the field that differs; losses are compared before
speeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bringup.checks.training.measured import differing_fields
from bringup.compare.entries import Entry
from bringup.errors import NotComparable

LOSS_TOLERANCE_NATS = {"float32": 1e-5, "bfloat16": 2e-2}
"""fp32: strategies differ by rounding order only (seen: 1.4e-6 over 20 steps). bf16: one last place of a loss near
6."""

HEADER = (
    "run",
    "judged",
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


@dataclass(frozen=True)
class Row:
    """One run beside the base: the run with the fewest ranks."""

    entry: Entry
    name: str
    scaling: float  # tokens/s/rank over the base's
    gap: float | None  # largest difference of the losses in a step, nats; None: no losses
    agrees: bool

    @property
    def cells(self) -> list[str]:
        metrics = self.entry.metrics
        gap = "no losses" if self.gap is None else f"{self.gap:.1e}{'' if self.agrees else ' DISAGREES'}"
        device = metrics.memory.device_allocated_gib
        return [
            self.name,
            self.entry.outcome.upper(),
            metrics.observed.kind,
            str(metrics.world_size),
            str(len(set(metrics.observed.hosts))),
            f"{metrics.tokens_per_s:,.0f}",
            f"{metrics.tokens_per_s_per_rank:,.0f}",
            f"{self.scaling:.2f}",
            f"{metrics.step_time_s.p50 * 1e3:.1f}",
            f"{metrics.step_time_s.p95 * 1e3:.1f}",
            f"{metrics.memory.host_rss_gib:.2f}",
            "none" if device is None else f"{device:.2f}",
            f"{metrics.loss[0]:.4f} → {metrics.loss[-1]:.4f}" if metrics.loss else "none",
            gap,
        ]


@dataclass(frozen=True)
class SideBySide:
    rows: list[Row]  # fewest ranks first
    note: str  # what the columns are relative to

    @property
    def disagreeing(self) -> list[Row]:
        """Runs whose losses do not agree with the base's."""
        return [row for row in self.rows if not row.agrees]


def compare(entries: Sequence[Entry]) -> SideBySide:
    """Raises NotComparable."""
    base = min(entries, key=lambda entry: entry.metrics.world_size)
    for entry in entries:
        differing = differing_fields(base.args, entry.args)
        if not differing and len(entry.metrics.loss) != len(base.metrics.loss):
            differing = [f"{len(base.metrics.loss)} vs {len(entry.metrics.loss)} losses"]
        if differing:
            raise NotComparable(
                f"{base.folder.name} and {entry.folder.name} are not comparable: {'; '.join(differing)}"
            )
    tolerance = LOSS_TOLERANCE_NATS.get(base.args.compute_dtype)
    ordered = sorted(entries, key=lambda entry: entry.metrics.world_size)
    names = short_names([entry.folder.name for entry in ordered])
    rows = [_row(entry, base, tolerance, name) for entry, name in zip(ordered, names, strict=True)]
    kept = (
        "unknown dtype, no tolerance"
        if tolerance is None
        else f"agree within {tolerance:g} ({base.args.compute_dtype})"
    )
    note = f"scaling and loss gap: against {base.folder.name}; losses must {kept}; tokens/s: all ranks, steady window"
    return SideBySide(rows, note)


def short_names(names: list[str]) -> list[str]:
    """The stems alone where all runs are of one playbook: it is in every name."""
    parts = [name.partition("-") for name in names]
    one_playbook = len({rest for _, _, rest in parts}) == 1 and len({stem for stem, _, _ in parts}) == len(names)
    return [stem for stem, _, _ in parts] if one_playbook else names


def _row(entry: Entry, base: Entry, tolerance: float | None, name: str) -> Row:
    gap = max((abs(a - b) for a, b in zip(entry.metrics.loss, base.metrics.loss, strict=True)), default=None)
    return Row(
        entry,
        name,
        scaling=entry.metrics.tokens_per_s_per_rank / base.metrics.tokens_per_s_per_rank,
        gap=gap,
        agrees=gap is not None and tolerance is not None and gap <= tolerance,
    )
