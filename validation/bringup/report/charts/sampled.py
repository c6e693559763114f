"""What the monitor sampled: a figure for each quantity, a line for each node or the middle of many."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from itertools import pairwise
from statistics import fmean, median, quantiles

from bringup.kernel.facts.names import shortened
from bringup.kernel.judge import Judged
from bringup.kernel.records import grouped, known
from bringup.readers import clock, monitor
from bringup.report.charts.drawing import Drawing, Series, lines
from bringup.training.records.folder import TrainingRecords, records_of

Line = Sequence[tuple[float, float]]  # (second, number)
MAX_NAMED = 8  # lines in one legend
MAX_OUTLIERS = 3  # nodes that are named beside the band of a fleet
SAMPLED = known("sampled", dict[str, str])


def draw(judged: Judged) -> list[Drawing]:
    """Draw what was sampled. Times are those of the fleet, as far as the nodes' clocks were compared."""
    rows_of = {node: rows for node, rows in monitor.of_run(judged.files).nodes.items() if len(rows) > 1}
    if not rows_of:
        return []
    shifts = clock.shifts(judged.observations)
    placed = {node: monitor.times(rows, shifts.get(node)) for node, rows in sorted(rows_of.items())}
    began, ended = min(map(min, placed.values())), max(map(max, placed.values()))
    moments, marked = _moments(records_of(judged), shifts, began, ended)
    start = datetime.fromtimestamp(began, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    note = "; ".join(filter(None, [f"Second 0 is {start}", clocks(placed, shifts), marked]))
    made = []
    for title, column in SAMPLED.items():
        known = {node: line_of([at - began for at in times], rows_of[node], column) for node, times in placed.items()}
        if of_nodes := {node: line for node, line in known.items() if len(line) > 1}:
            made.append(lines(title, _series(of_nodes), "seconds", "", from_zero=True, moments=moments))
    return [*made[:-1], *(replace(last, note=f"{note}.") for last in made[-1:])]


def _moments(
    training: TrainingRecords | None, shifts: Mapping[str, clock.Shift], began: float, ended: float
) -> tuple[list[tuple[float, str]], str]:
    """Return (second, style) of begin and end, end of the warm-up and checkpoints of a training that lies between these
    times, and what says so. Single steps are not marked: there may be thousands, of milliseconds each."""
    if training is None:
        return [], ""
    metrics = training.metrics
    host = metrics.observed.hosts[0]  # times are by its clock; a GPU may be a step behind the end of a step
    shift_s = (shifts[host].seconds if host in shifts else 0.0) - began
    first = 1 if metrics.resumed is None else metrics.resumed.step + 1
    ends = {step: end + shift_s for step, end in enumerate(metrics.steps_unix_s, start=first)}
    begin, last = ends[first] - metrics.startup.first_step_s, max(ends)
    if begin > ended - began or ends[last] < 0:
        return [], ""
    moments = [(begin, ""), (ends[last], "")]
    words = f"upright lines: training, from the begin of step {first} ({begin:.1f} s)"
    words += f" to the end of step {last} ({ends[last]:.1f} s)"
    if window := metrics.window_unix_s.get(host):
        moments.append((window[0] + shift_s, "dashed"))
        words += f"; dashed: end of the warm-up ({window[0] + shift_s:.1f} s)"
    saved = [] if metrics.checkpoint is None else [step for step in metrics.checkpoint.after_steps if step in ends]
    if saved:
        moments += [(ends[step], "dotted") for step in saved]
        words += f"; dotted: checkpoint after step {shortened([str(step) for step in saved])}"
    return moments, f"{words}; other steps are not marked"


def _series(of_nodes: Mapping[str, Line]) -> list[Series]:
    if len(of_nodes) <= MAX_NAMED:
        return [Series(node, line) for node, line in of_nodes.items()]
    by_second = grouped((round(time), number) for line in of_nodes.values() for time, number in line)
    cuts = {second: quantiles(by_second[second] * 2, n=20) for second in sorted(by_second)}  # twice: one node alone
    middle = [
        Series(name, [(float(second), cut[index]) for second, cut in cuts.items()])
        for name, index in (("5 % of the nodes are below", 0), ("median", 9), ("5 % are above", -1))
    ]
    means = {node: fmean(number for _, number in line) for node, line in of_nodes.items()}
    furthest = sorted(means, key=lambda node: -abs(means[node] - median(means.values())))  # from the middle ones
    return middle + [Series(node, of_nodes[node]) for node in furthest[:MAX_OUTLIERS]]


def line_of(times: Sequence[float], rows: Sequence[monitor.Row], column: str) -> list[tuple[float, float]]:
    """Return (second, number) of what was measured; where the cells count bytes, MB/s since the sample before."""
    cells = [(at, cell) for at, row in zip(times, rows, strict=True) if (cell := monitor.cell(row, column)) is not None]
    if not column.endswith("_bytes"):
        return cells
    return [(later, (b - a) / max(1e-9, later - time) / 1e6) for (time, a), (later, b) in pairwise(cells)]


def clocks(nodes: Collection[str], shifts: Mapping[str, clock.Shift]) -> str:
    """Say what was done to the times."""
    own = [node for node in nodes if node not in shifts]
    if len(own) == len(nodes):
        return "times are the nodes' own"
    worst = max(shift.uncertainty for node, shift in shifts.items() if node in nodes)
    left = f", but not of {', '.join(own[:3])}{' …' if len(own) > 3 else ''}" if own else ""
    return f"clocks put right to ± {worst:.2g} s{left}"
