"""Training runs beside each other, and the ranks of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from bringup.compare.entries import Entry
from bringup.compare.sidebyside import LOSS_TOLERANCE_NATS, short_names
from bringup.records import TrainMetrics
from bringup.records.grouped import grouped
from bringup.report.charts.drawing import Bar, Drawing, Limit, Series, bars, lines, places, short

_KINDS = ("single", "ddp", "fsdp", "hsdp")  # each a colour, the same in every figure
_STEPS = 6  # numbers on an axis of steps or ranks
_MOST_POINTS = 2000  # of a line; of more steps every n-th


def deciding(entries: Sequence[Entry]) -> list[Drawing]:
    """Draw what a strategy is chosen by: tokens/s beside the ideal, communication that nothing hides, equal losses."""
    entries, names = _ordered(entries)
    exposed = [
        Bar(name, metrics.communication_share, _percent(metrics.communication_share), _colour(metrics))
        for name, metrics in _named(entries, names)
        if metrics.communication_share is not None
    ]
    unknown = [
        name
        for name, metrics in _named(entries, names)
        if metrics.communication_share is None and metrics.world_size > 1
    ]
    made = _scaling(entries) or [_speeds(entries, names)]
    if exposed:
        note = f"not known: {', '.join(unknown)}" if unknown else ""
        made.append(bars("Communication that no computation hides, of a step", exposed, note, ends=1.0))
    return [*made, *_losses(entries, names), *_gaps(entries, names)]


def _scaling(entries: Sequence[Entry]) -> list[Drawing]:
    """Draw a figure for each strategy, all on one scale: tokens/s of all ranks over ranks, beside what one rank alone
    would make of so many. Empty without a run of one rank."""
    alone = next((entry.metrics for entry in entries if entry.metrics.world_size == 1), None)
    several = [entry.metrics for entry in entries if entry.metrics.world_size > 1]
    if alone is None or not several:
        return []
    most = max(metrics.world_size for metrics in several)
    ideal = Series(
        "ideal", [(1.0, alone.tokens_per_s), (float(most), alone.tokens_per_s * most)], "dashed", len(_KINDS) + 2
    )
    figures = []
    for kind, runs in grouped((metrics.observed.kind, metrics) for metrics in several).items():
        best = {run.world_size: run.tokens_per_s for run in sorted(runs, key=lambda run: run.tokens_per_s)}
        points = [(1.0, alone.tokens_per_s), *((float(ranks), best[ranks]) for ranks in sorted(best))]
        shares = [
            f"{ranks} ranks {_percent(speed / (ranks * alone.tokens_per_s))}" for ranks, speed in sorted(best.items())
        ]
        figures.append(
            lines(
                f"{kind.upper()}: tokens per second over ranks",
                [Series(kind.upper(), points, colour=_colour(runs[0])), ideal],
                "ranks",
                "",
                ticks=[(ranks, short(ranks)) for ranks, _ in points],
                from_zero=True,
                note=f"of the ideal: {', '.join(shares)}",
            )
        )
    return figures


def _speeds(entries: Sequence[Entry], names: Sequence[str]) -> Drawing:
    of_one = entries[0].metrics.tokens_per_s_per_rank
    rows = [
        Bar(
            name,
            metrics.tokens_per_s,
            f"{short(metrics.tokens_per_s)}; {_percent(metrics.tokens_per_s_per_rank / of_one)}",
            _colour(metrics),
        )
        for name, metrics in _named(entries, names)
    ]
    return bars("Tokens per second, all ranks", rows, f"%: a rank beside a rank of {names[0]}")


def of_ranks(entry: Entry) -> list[Drawing]:
    """Draw how ranks differ. Empty for a single rank."""
    metrics = entry.metrics
    if metrics.world_size < 2:
        return []
    ticks = [(step - 1, words) for step, words in places(metrics.world_size, _STEPS, lambda step: str(step - 1))]
    times = metrics.rank_times_s
    steps = {"p50": times.step_p50, "p95": times.step_p95, "slowest step": times.step_max}
    own = {"fetch": times.fetch, "forward": times.forward, "optimizer": times.optimizer}
    slow = metrics.straggler
    most = "" if slow is None else f"most: rank {slow.rank}, {slow.slowdown:.2f} × the median, in {slow.part}; "
    return [
        lines("Step time per rank", _per_rank(steps), "rank", "ms", ticks=ticks, from_zero=True),
        lines(
            "Own work of a rank in a step",
            _per_rank(own),
            "rank",
            "ms",
            ticks=ticks,
            from_zero=True,
            note=f"{most}medians; backward and communication are not in it",
        ),
    ]


def _per_rank(series: dict[str, list[float]]) -> list[Series]:
    return [
        Series(name, [(float(rank), second * 1e3) for rank, second in enumerate(values)])
        for name, values in series.items()
    ]


def _ordered(entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """Fewest ranks first, as in the table; by phase alone where each ran once, also in a run that was resumed."""
    ordered = sorted(entries, key=lambda entry: entry.metrics.world_size)
    phases = [entry.folder.name if entry.run is None else entry.run.phase for entry in ordered]
    is_once = len(set(phases)) == len(phases)
    return ordered, phases if is_once else short_names([entry.folder.name for entry in ordered])


def _named(entries: Sequence[Entry], names: Sequence[str]) -> list[tuple[str, TrainMetrics]]:
    return [(name, entry.metrics) for name, entry in zip(names, entries, strict=True)]


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _colour(metrics: TrainMetrics) -> int:
    kind = metrics.observed.kind
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def _losses(entries: Sequence[Entry], names: Sequence[str]) -> list[Drawing]:
    """Thick below thin, so that lines which coincide are all seen."""
    series = [
        Series(name, _every(list(enumerate(metrics.loss, start=1))), "" if index else "wide", index)
        for index, (name, metrics) in enumerate(_named(entries, names))
        if len(metrics.loss) > 1
    ]
    if not series:
        return []
    steps = max(len(entry.metrics.loss) for entry in entries)
    gaps = [abs(a - b) for entry in entries for a, b in zip(entry.metrics.loss, entries[0].metrics.loss, strict=False)]
    tolerance = LOSS_TOLERANCE_NATS.get(entries[0].args.compute_dtype)
    if len(series) > 1 and tolerance is not None and max(gaps) <= tolerance:  # one line, not as many as cover it
        series = [replace(series[0], name=f"all {len(series)} runs, within {tolerance:g} of each other", style="")]
    return [lines("Loss, nats per token", series, "optimizer step", "", ticks=places(steps, _STEPS, str))]


def _gaps(entries: Sequence[Entry], names: Sequence[str]) -> list[Drawing]:
    base = entries[0].metrics.loss
    series = [
        Series(name, points, colour=index)
        for index, (name, metrics) in enumerate(_named(entries, names))
        if index
        and (
            points := _every(
                [(step, abs(a - b)) for step, (a, b) in enumerate(zip(metrics.loss, base, strict=False), start=1)]
            )
        )
        and len(points) > 1
    ]
    tolerance = LOSS_TOLERANCE_NATS.get(entries[0].args.compute_dtype)
    if not series:
        return []
    limits = [] if tolerance is None else [Limit(tolerance, f"tolerance {tolerance:g}")]
    steps = max(len(points.points) for points in series)
    return [
        lines(
            f"Loss gap to {names[0]}, nats per token",
            series,
            "optimizer step",
            "",
            limits=limits,
            ticks=places(steps, _STEPS, str),
            from_zero=True,
        )
    ]


def _every(points: Sequence[tuple[int, float]]) -> list[tuple[float, float]]:
    """Return each point, or the median of so many: a long training in as many points as a figure has places."""
    bundle = -(-len(points) // _MOST_POINTS)
    if bundle < 2:
        return [(float(step), value) for step, value in points]
    groups = [points[start : start + bundle] for start in range(0, len(points), bundle)]
    return [(float(group[0][0]), median(value for _, value in group)) for group in groups]
