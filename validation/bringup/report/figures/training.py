"""Pictures of training runs: losses, step times, scaling, memory.

Axes of quantities begin at 0, except those of losses, which have no natural zero.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bringup.compare.entries import Entry
from bringup.compare.sidebyside import LOSS_TOLERANCE_NATS, short_names
from bringup.errors import UsageError
from bringup.report import outputs
from bringup.report.figures import canvas
from bringup.report.figures.canvas import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DASHES = ("-", "--", "-.", ":")
MARKERS = {"single": "o", "ddp": "s", "fsdp": "^", "hsdp": "D", "unknown": "x"}
_TITLE_CHARACTERS = 34  # of a run's name in a legend


def draw(entries: Sequence[Entry], target: Path) -> list[Path]:
    """One sheet if `target` is a .png, .svg or .pdf, else a folder with a picture each. Returns what was written.

    UsageError when there is no run, or `target` has another suffix.
    """
    if not entries:
        raise UsageError("no run to draw")
    entries = sorted(entries, key=lambda entry: (entry.metrics.world_size, entry.folder.name))
    names = short_names([entry.folder.name for entry in entries])
    if target.suffix in canvas.SHEETS:
        rows = -(-len(PANELS) // 3)
        outputs.check([outputs.Output("--plot", target, outputs.PICTURE)])
        figure, axes = canvas.panels(rows, 3, (16.5, 4.6 * rows))
        for panel, axis in zip(PANELS.values(), axes, strict=False):
            panel(axis, entries, names)
        for axis in axes[len(PANELS) :]:
            axis.set_visible(False)
        canvas.save(figure, target)
        return [target]
    if target.suffix:
        raise UsageError(f"--plot {target}: give a folder, or a file that ends in {', '.join(canvas.SHEETS)}")
    outputs.make_folder("--plot", target)
    written = {stem: target / f"{stem}.png" for stem in PANELS}
    outputs.check([outputs.Output("--plot", path, outputs.PICTURE) for path in written.values()])
    for stem, panel in PANELS.items():
        figure, axes = canvas.panels(1, 1, (7.4, 4.6))
        panel(axes[0], entries, names)
        canvas.save(figure, written[stem])
    return list(written.values())


def _colour(entry: Entry) -> str:
    """The colour of its strategy, the same in every picture."""
    return COLOURS[list(MARKERS).index(entry.metrics.observed.kind)]


def _style(entries: Sequence[Entry], index: int) -> dict[str, Any]:
    """The colour of the strategy; runs of one strategy differ in their dashes."""
    kind = entries[index].metrics.observed.kind
    alike = sum(entry.metrics.observed.kind == kind for entry in entries[:index])
    return {"color": _colour(entries[index]), "linestyle": DASHES[alike % len(DASHES)]}


def _short(name: str) -> str:
    return canvas.label(name, _TITLE_CHARACTERS)


def _rows(axis: Axes, labels: Sequence[str]) -> None:
    """A row for each run, the first at the top."""
    axis.set_yticks(range(len(labels)), list(reversed(labels)), fontsize="small")
    axis.set_xlim(left=0)


def _losses(axis: Axes, entries: Sequence[Entry], names: Sequence[str]) -> None:
    """Thick below thin, so that lines which coincide are all seen."""
    for index, (entry, name) in enumerate(zip(entries, names, strict=True)):
        losses = entry.metrics.loss
        axis.plot(
            range(1, len(losses) + 1),
            losses,
            label=_short(name),
            linewidth=max(1.2, 5.0 - index * 0.8),
            **_style(entries, index),
        )
    canvas.finish(axis, "Loss", "optimizer step", "loss, nats per token")
    _whole_steps(axis)


def _gaps(axis: Axes, entries: Sequence[Entry], names: Sequence[str]) -> None:
    base = entries[0]
    for index, (entry, name) in enumerate(zip(entries, names, strict=True)):
        steps = [
            (step, abs(a - b))
            for step, (a, b) in enumerate(zip(entry.metrics.loss, base.metrics.loss, strict=False), start=1)
            if a != b
        ]
        if entry is not base and steps:
            axis.plot(
                [step for step, _ in steps],
                [gap for _, gap in steps],
                marker=MARKERS[entry.metrics.observed.kind],
                markersize=4,
                linewidth=1.2,
                label=_short(name),
                **_style(entries, index),
            )
    if not axis.lines:
        axis.text(0.5, 0.4, "no step differs", ha="center", transform=axis.transAxes)
        axis.set_xlim(0, max(1, len(base.metrics.loss)))
    tolerance = LOSS_TOLERANCE_NATS.get(base.args.compute_dtype)
    if tolerance is not None:
        axis.axhline(
            tolerance, color="black", linewidth=1, linestyle="--", label=f"tolerance, {base.args.compute_dtype}"
        )
    axis.set_yscale("log")
    canvas.finish(
        axis, f"Loss gap to {_short(names[0])} (equal steps not shown)", "optimizer step", "gap, nats per token"
    )
    _whole_steps(axis)


def _whole_steps(axis: Axes) -> None:
    from matplotlib.ticker import MaxNLocator

    axis.xaxis.set_major_locator(MaxNLocator(integer=True))


def _steps(axis: Axes, entries: Sequence[Entry], names: Sequence[str]) -> None:
    """A row per run: the band from p50 to p95 and the slowest step; the single steps where they were recorded."""
    for index, entry in enumerate(entries):
        time_s, colour, y = entry.metrics.step_time_s, _colour(entry), len(entries) - 1 - index
        recorded = [second * 1e3 for second in entry.steps]
        if recorded:
            axis.plot(recorded, [y - 0.24] * len(recorded), "|", color=colour, markersize=7, alpha=0.5)
        axis.barh(
            y,
            (time_s.p95 - time_s.p50) * 1e3,
            left=time_s.p50 * 1e3,
            height=0.3,
            color=colour,
            alpha=0.55,
            label="p50 to p95" if index == 0 else None,
        )
        axis.plot(
            time_s.p50 * 1e3,
            y,
            "|",
            color=colour,
            markersize=20,
            markeredgewidth=3,
            label="p50" if index == 0 else None,
        )
        axis.plot(time_s.max * 1e3, y, "x", color=colour, markersize=6, label="slowest step" if index == 0 else None)
    _rows(axis, list(map(_short, names)))
    axis.set_ylim(-0.6, len(entries) - 0.4)
    canvas.finish(axis, "Step time in the steady window, all ranks", "milliseconds", "")


def _speed(axis: Axes, entries: Sequence[Entry], names: Sequence[str]) -> None:
    for kind in MARKERS:
        of_kind = [entry for entry in entries if entry.metrics.observed.kind == kind]
        if of_kind:
            axis.plot(
                [entry.metrics.world_size for entry in of_kind],
                [entry.metrics.tokens_per_s for entry in of_kind],
                MARKERS[kind],
                color=_colour(of_kind[0]),
                markersize=8,
                label=kind,
                alpha=0.8,
            )
    base, most = entries[0].metrics, max(entry.metrics.world_size for entry in entries)
    axis.plot(
        [0, most],
        [0, base.tokens_per_s_per_rank * most],
        color="black",
        linewidth=1,
        linestyle="--",
        label=f"ideal: {base.tokens_per_s_per_rank:,.0f} per rank, of {_short(names[0])}",
    )
    axis.set_xlim(0, most * 1.08)
    axis.set_ylim(bottom=0)
    _whole_steps(axis)
    canvas.finish(axis, "Throughput", "ranks", "tokens per second, all ranks")


def _efficiency(axis: Axes, entries: Sequence[Entry], names: Sequence[str]) -> None:
    base = entries[0].metrics
    for index, entry in enumerate(entries):
        share, y = entry.metrics.tokens_per_s_per_rank / base.tokens_per_s_per_rank, len(entries) - 1 - index
        axis.barh(y, 100 * share, height=0.55, color=_colour(entry), alpha=0.75)
        _number(axis, 100 * share, y, f"{100 * share:.0f} %", "small")
    axis.axvline(100, color="black", linewidth=1, linestyle="--", label="ideal")
    _rows(axis, [f"{_short(name)} ({entry.metrics.world_size})" for name, entry in zip(names, entries, strict=True)])
    canvas.finish(
        axis,
        "Scaling at the same global batch",
        f"tokens/s per rank, % of {_short(names[0])}'s",
        "",
        legend="lower right",
    )


def _memory(axis: Axes, entries: Sequence[Entry], names: Sequence[str]) -> None:
    kinds: dict[str, Callable[[Entry], float | None]] = {
        "host, resident": lambda entry: entry.metrics.memory.host_rss_gib,
        "device, allocated": lambda entry: entry.metrics.memory.device_allocated_gib,
        "device, reserved": lambda entry: entry.metrics.memory.device_reserved_gib,
    }
    measured = {kind: read for kind, read in kinds.items() if any(read(entry) is not None for entry in entries)}
    height = 0.7 / len(measured)
    for row, (kind, read) in enumerate(measured.items()):
        values = [
            (len(entries) - 1 - index + (len(measured) / 2 - row - 0.5) * height, read(entry))
            for index, entry in enumerate(entries)
        ]
        axis.barh(
            [y for y, gib in values if gib is not None],
            [gib for _, gib in values if gib is not None],
            height=height,
            color=COLOURS[row],
            alpha=0.75,
            label=kind,
        )
        for y, gib in values:
            if gib is not None:
                _number(axis, gib, y, f"{gib:.3g}")
    _rows(axis, list(map(_short, names)))
    canvas.finish(axis, "Peak memory of the rank with most", "GiB", "")


def _exposed(axis: Axes, entries: Sequence[Entry], names: Sequence[str]) -> None:
    """Where the time of a step goes: computation, with what it hides, and communication that nothing overlapped."""
    for index, entry in enumerate(entries):
        step_ms, y = 1e3 * entry.metrics.step_time_s.p50, len(entries) - 1 - index
        share = entry.metrics.communication_share
        alone_ms = (share or 0.0) * step_ms
        axis.barh(y, step_ms - alone_ms, height=0.55, color=_colour(entry), alpha=0.75)
        axis.barh(y, alone_ms, left=step_ms - alone_ms, height=0.55, color=_colour(entry), alpha=0.35, hatch="//")
        known = "" if share is None else f"{100 * share:.0f} % alone"
        _number(axis, step_ms, y, known or ("one rank" if entry.metrics.world_size == 1 else "not measured"), "small")
    axis.barh(0, 0, color="black", alpha=0.35, hatch="//", label="communication that nothing overlapped")
    _rows(axis, [f"{_short(name)} ({entry.metrics.world_size})" for name, entry in zip(names, entries, strict=True)])
    canvas.finish(axis, "Where a step goes (p50)", "milliseconds", "", legend="lower right")


def _number(axis: Axes, x: float, y: float, text: str, size: str = "x-small") -> None:
    """At the end of a bar."""
    axis.annotate(text, (x, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=size)
    axis.margins(x=0.18)


def _predicted(axis: Axes, entries: Sequence[Entry], names: Sequence[str]) -> None:
    """Measured as bars, predicted as lines across them."""
    checks = [entry.metrics.memory_check for entry in entries]
    sizes: dict[str, list[tuple[int | None, int | None]]] = {
        "states (parameters, gradients, optimizer)": [
            (check.states_measured_bytes, check.states_predicted_bytes) for check in checks
        ],
        "peak of the device's allocator": [(check.peak_measured_bytes, check.peak_predicted_bytes) for check in checks],
    }
    kinds = [(kind, values) for kind, values in sizes.items() if any(measured is not None for measured, _ in values)]
    most = max(size or 0 for _, values in kinds for pair in values for size in pair)
    unit, size_of = ("GiB", 2**30) if most >= 2**30 else ("MiB", 2**20)
    height = 0.7 / len(kinds)
    for row, (kind, values) in enumerate(kinds):
        for index, (measured, predicted) in enumerate(values):
            y = len(entries) - 1 - index + (len(kinds) / 2 - row - 0.5) * height
            if measured is not None:
                axis.barh(y, measured / size_of, height=0.9 * height, color=COLOURS[row], alpha=0.75)
            if predicted is not None and measured is not None:
                axis.plot([predicted / size_of] * 2, [y - height / 2, y + height / 2], color="black", linewidth=2.5)
                off = 100 * (measured / predicted - 1) if predicted else float("nan")
                at = max(measured, predicted) / size_of
                _number(axis, at, y, f"{measured / size_of:.3g} ({off:+.1f} %)")
        axis.plot([], [], color=COLOURS[row], linewidth=7, alpha=0.75, label=f"measured {kind}")
    axis.plot([], [], color="black", linewidth=2.5, label="predicted")
    _rows(axis, list(map(_short, names)))
    axis.set_ylim(-0.6, len(entries) + 0.1)
    canvas.finish(axis, "Memory of a rank, measured and predicted", unit, "")


PANELS: dict[str, Callable[[Axes, Sequence[Entry], Sequence[str]], None]] = {
    "loss": _losses,
    "loss-gap": _gaps,
    "step-time": _steps,
    "throughput": _speed,
    "scaling": _efficiency,
    "exposed-communication": _exposed,
    "memory": _memory,
    "memory-predicted": _predicted,
}
