"""What the monitor sampled: a figure for each quantity, a line for each node or the middle of many."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from statistics import quantiles

from bringup.evidence import clock, monitor
from bringup.judge import Judged
from bringup.report.charts.drawing import Drawing, Series, lines
from bringup.report.figures import run as samples
from bringup.report.figures import steps

_MOST_POINTS = 600  # of a line


def draw(judged: Judged) -> list[Drawing]:
    """Times are those of the fleet, as far as the nodes' clocks were compared."""
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
    caption = f"Second 0 is {start}; {samples.clocks(placed, shifts)}"
    made = []
    for title, column in samples.SAMPLED:
        of_nodes = {
            node: line
            for node, times in placed.items()
            if len(line := samples.line_of([time - began for time in times], rows_of[node], column)) > 1
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


def _series(of_nodes: Mapping[str, samples.Line]) -> list[Series]:
    if len(of_nodes) <= samples.MAX_NAMED:
        return [Series(node, _thinned(line)) for node, line in of_nodes.items()]
    by_second: dict[int, list[float]] = {}
    for line in of_nodes.values():
        for time, number in line:
            by_second.setdefault(round(time), []).append(number)
    cuts = {second: quantiles(by_second[second] * 2, n=20) for second in sorted(by_second)}  # twice: one node alone
    middle = [
        Series(name, _thinned([(float(second), cut[index]) for second, cut in cuts.items()]))
        for name, index in (("5 % of the nodes are below", 0), ("median", 9), ("5 % are above", -1))
    ]
    return middle + [Series(node, _thinned(of_nodes[node])) for node in samples.outliers(of_nodes)]


def _thinned(line: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """As many points as a figure has places: the lowest and the highest of each stretch stay."""
    stretch = -(-len(line) * 2 // _MOST_POINTS)
    if stretch < 3:
        return list(line)
    kept: list[tuple[float, float]] = []
    for start in range(0, len(line), stretch):
        part = line[start : start + stretch]
        kept += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return kept
