"""What the monitor sampled: a figure for each quantity, a line for each node or the middle of many."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from statistics import fmean, median, quantiles

from bringup.evidence import clock, monitor
from bringup.judge import Judged
from bringup.records.grouped import grouped
from bringup.report.charts import steps
from bringup.report.charts.drawing import Drawing, Series, lines

Line = Sequence[tuple[float, float]]  # (second, number)
_MOST_POINTS = 600  # of a line
MAX_NAMED = 8  # lines in one legend
MAX_OUTLIERS = 3  # nodes that are named beside the band of a fleet
SAMPLED = (  # title, column
    ("CPU, %", "cpu_percent"),
    ("memory used, GiB", "memory_used_gib"),
    ("busiest GPU, %", "gpu_percent"),
    ("sent over network interfaces, MB/s", "tx_bytes"),
    ("sent over RDMA, MB/s", "rdma_tx_bytes"),
    ("all GPUs, W", "gpu_power_w"),
)


def draw(judged: Judged) -> list[Drawing]:
    """Draw what was sampled. Times are those of the fleet, as far as the nodes' clocks were compared."""
    rows_of = {node: rows for node, rows in monitor.of_run(judged.folder).nodes.items() if len(rows) > 1}
    if not rows_of:
        return []
    shifts = clock.shifts(judged.observations)
    placed = {node: monitor.times(rows, shifts.get(node)) for node, rows in sorted(rows_of.items())}
    began, ended = min(map(min, placed.values())), max(map(max, placed.values()))
    trained = steps.moments(judged.training)
    host_s = shifts[trained.host].seconds if trained is not None and trained.host in shifts else 0.0
    marks = steps.marks(trained, host_s - began, ended - began)
    start = datetime.fromtimestamp(began, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    caption = f"Second 0 is {start}; {clocks(placed, shifts)}"
    made = []
    for title, column in SAMPLED:
        of_nodes = {
            node: line
            for node, times in placed.items()
            if len(line := line_of([time - began for time in times], rows_of[node], column)) > 1
        }
        if of_nodes:
            made.append(
                lines(
                    title,
                    _series(of_nodes),
                    "seconds",
                    "",
                    from_zero=True,
                    moments=() if marks is None else marks.moments,
                )
            )
    notes = [caption] if marks is None else [caption, marks.caption]
    return [*made[:-1], made[-1].with_note(f"{'; '.join(notes)}.")] if made else []


def _series(of_nodes: Mapping[str, Line]) -> list[Series]:
    if len(of_nodes) <= MAX_NAMED:
        return [Series(node, _thinned(line)) for node, line in of_nodes.items()]
    by_second = grouped((round(time), number) for line in of_nodes.values() for time, number in line)
    cuts = {second: quantiles(by_second[second] * 2, n=20) for second in sorted(by_second)}  # twice: one node alone
    middle = [
        Series(name, _thinned([(float(second), cut[index]) for second, cut in cuts.items()]))
        for name, index in (("5 % of the nodes are below", 0), ("median", 9), ("5 % are above", -1))
    ]
    return middle + [Series(node, _thinned(of_nodes[node])) for node in outliers(of_nodes)]


def _thinned(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep as many points as a figure has places: the lowest and the highest of each stretch stay."""
    stretch = -(-len(line) * 2 // _MOST_POINTS)
    if stretch < 3:
        return list(line)
    kept: list[tuple[float, float]] = []
    for start in range(0, len(line), stretch):
        part = line[start : start + stretch]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return kept


def outliers(lines: Mapping[str, Line]) -> list[str]:
    """Name the nodes whose mean lies furthest from that of the nodes in the middle."""
    means = {node: fmean(number for _, number in line) for node, line in lines.items()}
    middle = median(means.values())
    return sorted(means, key=lambda node: -abs(means[node] - middle))[:MAX_OUTLIERS]


def line_of(times: Sequence[float], rows: Sequence[monitor.Row], column: str) -> list[tuple[float, float]]:
    """Return (second, number) of what was measured; where the cells count bytes, MB/s since the sample before."""
    measured = [
        (time, number)
        for time, row in zip(times, rows, strict=True)
        if (number := monitor.cell(row, column)) is not None
    ]
    if not column.endswith("_bytes"):
        return measured
    return [(later, (b - a) / max(1e-9, later - time) / 1e6) for (time, a), (later, b) in pairwise(measured)]


def clocks(nodes: Collection[str], shifts: Mapping[str, clock.Shift]) -> str:
    """Say what was done to the times."""
    own = [node for node in nodes if node not in shifts]
    if len(own) == len(nodes):
        return "times are the nodes' own"
    worst = max(shift.uncertainty for node, shift in shifts.items() if node in nodes)
    left = f", but not of {', '.join(own[:3])}{' …' if len(own) > 3 else ''}" if own else ""
    return f"clocks put right to ± {worst:.2g} s{left}"
