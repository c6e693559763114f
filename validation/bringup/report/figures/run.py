"""Pictures of one run: bandwidth over size, and what the monitor sampled."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from statistics import fmean, median, quantiles
from typing import TYPE_CHECKING

from bringup.evidence import clock, curve, monitor
from bringup.plan import profile as profiles
from bringup.plan.subjects import scale_nodes
from bringup.records import Observation
from bringup.report.figures import canvas, steps
from bringup.results import TrainingRecords

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Line = Sequence[tuple[float, float]]  # (second, number)
CURVES, TIMELINES = "curves.png", "timelines.png"
MAX_NAMED = 8  # lines in one legend
MAX_OUTLIERS = 3  # nodes that are named beside the band of a fleet
_FLOOR_WIDTH = 1.8  # factor on the axis of sizes
SAMPLED = (  # title, column
    ("CPU, %", "cpu_percent"),
    ("memory used, GiB", "memory_used_gib"),
    ("busiest GPU, %", "gpu_percent"),
    ("sent over network interfaces, MB/s", "tx_bytes"),
    ("sent over RDMA, MB/s", "rdma_tx_bytes"),
    ("all GPUs, W", "gpu_power_w"),
)


def draw(
    folder: Path,
    observations: Sequence[Observation],
    profile: profiles.Profile,
    training: TrainingRecords | None = None,
    into: Path | None = None,
) -> list[tuple[str, str]]:
    """(title, file name) of the pictures drawn into the run's folder, or another; none when there is nothing to
    draw. training: its steps are marked in what was sampled."""
    drawn = []
    into = folder if into is None else into
    by_scale = curve.curves(list(observations))
    if any(len(points) > 1 for names in by_scale.values() for points in names.values()):
        _curves(into / CURVES, by_scale, profile)
        drawn.append(("Bus bandwidth over size", CURVES))
    samples = {node: rows for node, rows in monitor.of_run(folder).nodes.items() if len(rows) > 1}
    if samples:
        _timelines(into / TIMELINES, samples, clock.shifts(observations), steps.moments(training))
        drawn.append(("What the monitor sampled", TIMELINES))
    return drawn


def markdown(drawn: Sequence[tuple[str, str]] | None) -> str:
    """The end of report.md. None: nothing can be drawn here."""
    if drawn is None:
        return f"\nThere are {canvas.NOT_DRAWN}.\n"
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
        for (limit, at), scales in floors(profile, f"nccl.{name}.busbw", by_scale).items():
            where = "" if len(scales) == len(by_scale) else f" on {', '.join(scales)}"
            size = next((size for size, text in sizes.items() if text == at), None)
            if size is not None:  # it holds at its size, and says nothing of the others
                panel.plot(
                    [size / _FLOOR_WIDTH, size, size * _FLOOR_WIDTH],
                    [limit] * 3,
                    color="black",
                    linewidth=2,
                    marker=7,  # a caret
                    markevery=[1],
                    label=f"expected ≥ {limit:g} at {at}{where}",
                )
        has_floor = any(str(line.get_label()).startswith("expected") for line in panel.lines)
        title = name if has_floor else f"{name} (no floor declared)"
        panel.set(title=canvas.label(title), xscale="log", yscale="log", xlabel="size", ylabel="bus bandwidth, GB/s")
        shown = sorted(sizes)[:: -(-len(sizes) // 7)]
        panel.set_xticks(shown, [canvas.label(sizes[size]) for size in shown], rotation=30)
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.legend(fontsize="x-small")
    canvas.save(figure, path)


def floors(profile: profiles.Profile, gate: str, scales: Iterable[str]) -> dict[tuple[float, str], list[str]]:
    """(number, size that it holds for) -> the scales."""
    entry = profile.expect.get(gate)
    floors: dict[tuple[float, str], list[str]] = {}
    if entry is None or entry.at is None:
        return floors
    for scale in sorted(scales, key=scale_nodes):
        limit = profile.limit(gate, scale_nodes(scale)).value
        if isinstance(limit, int | float):
            floors.setdefault((float(limit), entry.at), []).append(scale)
    return floors


def _timelines(
    path: Path,
    samples: Mapping[str, Sequence[monitor.Row]],
    shifts: Mapping[str, clock.Shift],
    trained: steps.Moments | None,
) -> None:
    """One panel per quantity, one line per node, all against the fleet's clock as far as the nodes' own were
    compared with it."""
    placed = {node: monitor.times(rows, shifts.get(node)) for node, rows in sorted(samples.items())}
    began = min(min(times) for times in placed.values())
    ended = max(max(times) for times in placed.values())
    host_s = shifts[trained.host].seconds if trained is not None and trained.host in shifts else 0.0
    marks = steps.marks(trained, host_s - began, ended - began)
    figure, panels = canvas.panels(2, 3, (16, 6.4))
    for panel, (title, column) in zip(panels, SAMPLED, strict=True):
        lines = {
            node: line
            for node, unix in placed.items()
            if (line := line_of([moment - began for moment in unix], samples[node], column))
        }
        shown = list(lines)
        if len(lines) > MAX_NAMED:
            _band(panel, list(lines.values()))
            shown = outliers(lines)
        for index, node in enumerate(shown):
            panel.plot(
                [time for time, _ in lines[node]],
                [number for _, number in lines[node]],
                label=canvas.label(moved(node, shifts.get(node))),
                linewidth=1.3,
                linestyle=("-", "--", "-.", ":")[index % 4],  # a line under another one is still seen
            )
        if lines:
            panel.set_ylim(0, 1.05 * panel.get_ylim()[1])  # a line at 100 % all the time is not hidden by the frame
            panel.legend(fontsize="x-small")
            if marks is not None:
                marks.draw(panel)
        else:
            panel.text(0.5, 0.5, "not measured", ha="center", va="center", transform=panel.transAxes)
            panel.set_xticks([])
            panel.set_yticks([])
        panel.set(title=title, xlabel="seconds")
        panel.grid(alpha=0.3)
    start = datetime.fromtimestamp(began, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    put_right = canvas.label(clocks(placed, shifts))
    caption = f"second 0 is {start} (unix {began:.0f}); {put_right}"
    figure.suptitle(caption if marks is None else f"{caption}\n{canvas.label(marks.caption)}", fontsize="medium")
    canvas.save(figure, path)


def _band(panel: Axes, lines: Sequence[Line]) -> None:
    """A fleet, second by second: the middle 90 % of the nodes, and their median."""
    by_second: dict[int, list[float]] = {}
    for line in lines:
        for time, number in line:
            by_second.setdefault(round(time), []).append(number)
    seconds = sorted(by_second)
    cuts = [quantiles(by_second[second] * 2, n=20) for second in seconds]  # twice: one node alone has a band, too
    panel.fill_between(
        seconds, [cut[0] for cut in cuts], [cut[-1] for cut in cuts], alpha=0.3, label=f"90 % of {len(lines)} nodes"
    )
    panel.plot(seconds, [cut[9] for cut in cuts], linewidth=1.5, color="black", label="median")


def outliers(lines: Mapping[str, Line]) -> list[str]:
    """Nodes whose mean lies furthest from that of the nodes in the middle."""
    means = {node: fmean(number for _, number in line) for node, line in lines.items()}
    middle = median(means.values())
    return sorted(means, key=lambda node: -abs(means[node] - middle))[:MAX_OUTLIERS]


def line_of(times: Sequence[float], rows: Sequence[monitor.Row], column: str) -> list[tuple[float, float]]:
    """(second, number) of what was measured; where the cells count bytes, MB/s since the sample before."""
    measured = [
        (time, number)
        for time, row in zip(times, rows, strict=True)
        if (number := monitor.cell(row, column)) is not None
    ]
    if not column.endswith("_bytes"):
        return measured
    return [(later, (b - a) / max(1e-9, later - time) / 1e6) for (time, a), (later, b) in pairwise(measured)]


def moved(node: str, shift: clock.Shift | None) -> str:
    return f"{node} (own clock)" if shift is None else f"{node} ({shift.moved})"


def clocks(nodes: Collection[str], shifts: Mapping[str, clock.Shift]) -> str:
    """What was done to the times."""
    own = [node for node in nodes if node not in shifts]
    if len(own) == len(nodes):
        return "times are the nodes' own"
    worst = max(shift.uncertainty for node, shift in shifts.items() if node in nodes)
    left = f", but not of {', '.join(own[:3])}{' …' if len(own) > 3 else ''}" if own else ""
    return f"clocks put right to ± {worst:.2g} s{left}"
