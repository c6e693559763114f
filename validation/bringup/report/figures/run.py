"""Pictures of one run: bandwidth over size, and what the monitor sampled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from bringup.evidence import clock, curve, monitor
from bringup.plan import profile as profiles
from bringup.plan.subjects import scale_nodes
from bringup.records import Observation
from bringup.report.figures import canvas

CURVES, TIMELINES = "curves.png", "timelines.png"
MAX_NAMED = 8  # lines in one legend
_SAMPLED = tuple(
    (title, monitor.COLUMNS.index(column), column.endswith("_bytes"))
    for title, column in (
        ("CPU, %", "cpu_percent"),
        ("memory used, GiB", "memory_used_gib"),
        ("busiest GPU, %", "gpu_percent"),
        ("sent over network interfaces, MB/s", "tx_bytes"),
        ("sent over RDMA, MB/s", "rdma_tx_bytes"),
        ("all GPUs, W", "gpu_power_w"),
    )
)  # title, column, whether it counts


def draw(
    folder: Path, observations: Sequence[Observation], profile: profiles.Profile, into: Path | None = None
) -> list[tuple[str, str]]:
    """(title, file name) of the pictures drawn into the run's folder, or another; none when there is nothing to
    draw."""
    drawn = []
    into = folder if into is None else into
    by_scale = curve.curves(list(observations))
    if any(len(points) > 1 for names in by_scale.values() for points in names.values()):
        _curves(into / CURVES, by_scale, profile)
        drawn.append(("Bus bandwidth over size", CURVES))
    sampled = _text(folder / "raw/monitor.csv")
    if sampled is not None:
        samples, _ = monitor.samples(sampled, "")
        samples = {node: rows for node, rows in samples.items() if len(rows) > 1}
        if samples:
            _timelines(into / TIMELINES, samples, clock.shifts(observations))
            drawn.append(("What the monitor sampled", TIMELINES))
    return drawn


def _text(path: Path) -> str | None:
    """None where it is not there or cannot be read, which the judge has said in its notes."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def markdown(drawn: Sequence[tuple[str, str]]) -> str:
    """The end of report.md."""
    return "".join(f"\n## {title}\n\n![{title}]({name})\n" for title, name in drawn)


def _curves(path: Path, by_scale: Mapping[str, Mapping[str, Sequence[curve.Point]]], profile: profiles.Profile) -> None:
    names = sorted({name for by_name in by_scale.values() for name in by_name})
    columns = min(3, len(names))
    rows = -(-len(names) // columns)
    figure, panels = canvas.panels(rows, columns, (4.6 * columns, 3.6 * rows))
    for panel in panels[len(names) :]:
        panel.set_visible(False)
    for name, panel in zip(names, panels, strict=False):
        sizes: dict[int, str] = {}
        for scale in sorted(by_scale, key=scale_nodes):
            points = by_scale[scale].get(name, [])
            if points:
                panel.plot(
                    [size for size, _, _ in points],
                    [speed for _, speed, _ in points],
                    marker="o",
                    markersize=4,
                    label=canvas.label(scale),
                )
                sizes |= {size: observation.quantity.partition("@")[2] for size, _, observation in points}
        for (limit, at), scales in _floors(profile, f"nccl.{name}.busbw", by_scale).items():
            where = "" if len(scales) == len(by_scale) else f" on {', '.join(scales)}"
            panel.axhline(
                limit, linestyle="--", color="black", linewidth=1, label=f"expected ≥ {limit:g} at {at}{where}"
            )
        panel.set(title=canvas.label(name), xscale="log", yscale="log", xlabel="size", ylabel="bus bandwidth, GB/s")
        shown = sorted(sizes)[:: -(-len(sizes) // 7)]
        panel.set_xticks(shown, [canvas.label(sizes[size]) for size in shown], rotation=30)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.legend(fontsize="x-small")
    canvas.save(figure, path)


def _floors(profile: profiles.Profile, gate: str, scales: Iterable[str]) -> dict[tuple[float, str], list[str]]:
    """(number, size that it holds for) -> the scales."""
    entry = profile.expect.get(gate)
    found: dict[tuple[float, str], list[str]] = {}
    if entry is None or entry.at is None:
        return found
    for scale in sorted(scales, key=scale_nodes):
        limit = profile.limit(gate, scale_nodes(scale)).value
        if isinstance(limit, int | float):
            found.setdefault((float(limit), entry.at), []).append(scale)
    return found


def _timelines(path: Path, samples: Mapping[str, Sequence[Sequence[str]]], shifts: Mapping[str, clock.Shift]) -> None:
    """One panel per quantity, one line per node, all against the fleet's clock as far as the nodes' own were
    compared with it."""
    placed = {node: monitor.times(rows, shifts.get(node)) for node, rows in sorted(samples.items())}
    began = min(min(times) for times in placed.values())
    figure, panels = canvas.panels(2, 3, (16, 6.4))
    for panel, (title, column, counts) in zip(panels, _SAMPLED, strict=True):
        for node, unix in placed.items():
            line = _line([moment - began for moment in unix], samples[node], column, counts)
            if line:
                panel.plot(
                    [time for time, _ in line],
                    [number for _, number in line],
                    label=canvas.label(_moved(node, shifts.get(node))),
                    linewidth=1.3,
                )
        if panel.lines:
            panel.set_ylim(bottom=0)
            if len(samples) <= MAX_NAMED:
                panel.legend(fontsize="x-small")
        else:
            panel.text(0.5, 0.5, "not measured", ha="center", va="center", transform=panel.transAxes)
        panel.set(title=title, xlabel="seconds")
        panel.grid(alpha=0.3)
    start = datetime.fromtimestamp(began, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    clocks = canvas.label(_clocks(placed, shifts))
    figure.suptitle(f"second 0 is {start} (unix {began:.0f}); {clocks}", fontsize="medium")
    canvas.save(figure, path)


def _line(
    times: Sequence[float], rows: Sequence[Sequence[str]], column: int, counts: bool
) -> list[tuple[float, float]]:
    """(second, number) of what was measured; where the cells count bytes, MB/s since the sample before."""
    measured = [
        (time, number)
        for time, row in zip(times, rows, strict=True)
        if (number := monitor.cell(row, column)) is not None
    ]
    if not counts:
        return measured
    return [(later, (b - a) / max(1e-9, later - time) / 1e6) for (time, a), (later, b) in pairwise(measured)]


def _moved(node: str, shift: clock.Shift | None) -> str:
    return f"{node} (own clock)" if shift is None else f"{node} ({shift.moved})"


def _clocks(nodes: Collection[str], shifts: Mapping[str, clock.Shift]) -> str:
    """What was done to the times."""
    own = [node for node in nodes if node not in shifts]
    if len(own) == len(nodes):
        return "times are the nodes' own"
    worst = max(shift.uncertainty for node, shift in shifts.items() if node in nodes)
    left = f", but not of {', '.join(own[:3])}{' …' if len(own) > 3 else ''}" if own else ""
    return f"clocks put right to ± {worst:.2g} s{left}"
