"""Training runs beside each other, and the ranks of one."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from bringup.kernel.records import grouped
from bringup.report.charts.drawing import Bar, Drawing, Limit, Series, bars, lines, short
from bringup.training.comparison.entries import Entry
from bringup.training.comparison.sidebyside import LOSS_TOLERANCE_NATS, short_names
from bringup.training.records import TrainMetrics

_KINDS = ("single", "ddp", "fsdp", "hsdp")  # each a colour, the same in every figure
_Runs = Sequence[tuple[str, TrainMetrics]]  # with its name


def deciding(entries: Sequence[Entry]) -> list[Drawing]:
    """Draw what a strategy is chosen by: tokens/s beside the ideal, communication that nothing hides, equal losses.
    Fewest ranks first, as in the table; by phase alone where each ran once, also in a run that was resumed."""
    ordered = sorted(entries, key=lambda entry: entry.metrics.world_size)
    phases = [entry.folder.name if entry.run is None else entry.run.phase for entry in ordered]
    names = phases if len(set(phases)) == len(phases) else short_names([entry.folder.name for entry in ordered])
    runs = [(name, entry.metrics) for name, entry in zip(names, ordered, strict=True)]
    tolerance = LOSS_TOLERANCE_NATS.get(ordered[0].args.compute_dtype)
    return [*(_scaling(runs) or [_speeds(runs)]), *_exposed(runs), *_losses(runs, tolerance), *_gaps(runs, tolerance)]


def _scaling(runs: _Runs) -> list[Drawing]:
    """Draw tokens/s over ranks of each strategy beside the ideal, one rank's times ranks. Empty without that run."""
    alone = next((metrics.tokens_per_s for _, metrics in runs if metrics.world_size == 1), None)
    several = grouped((metrics.observed.kind, metrics) for _, metrics in runs if metrics.world_size > 1)
    if alone is None or not several:
        return []
    most = max(metrics.world_size for of_kind in several.values() for metrics in of_kind)
    ideal = Series("ideal", [(1.0, alone), (float(most), alone * most)], "dashed", len(_KINDS) + 2)
    figures = []
    for kind, of_kind in several.items():
        fastest_last = sorted(of_kind, key=lambda run: (run.world_size, run.tokens_per_s))
        best = {run.world_size: run.tokens_per_s for run in fastest_last}
        points = [(1.0, alone), *((float(ranks), speed) for ranks, speed in best.items())]
        shares = [f"{ranks} ranks {_percent(speed / (ranks * alone))}" for ranks, speed in best.items()]
        both = [Series(kind.upper(), points, colour=_colour(of_kind[0])), ideal]
        ticks = [(ranks, short(ranks)) for ranks, _ in points]
        title, note = f"{kind.upper()}: tokens per second over ranks", f"of the ideal: {', '.join(shares)}"
        figures.append(lines(title, both, "ranks", "", ticks=ticks, from_zero=True, note=note))
    return figures


def _speeds(runs: _Runs) -> Drawing:
    first, base = runs[0]
    rows = []
    for name, metrics in runs:
        share = _percent(metrics.tokens_per_s_per_rank / base.tokens_per_s_per_rank)
        words = f"{short(metrics.tokens_per_s)}; {share}"
        rows.append(Bar(name, metrics.tokens_per_s, words, f"fill-{_colour(metrics)}"))
    return bars("Tokens per second, all ranks", rows, f"%: a rank beside a rank of {first}")


def _exposed(runs: _Runs) -> list[Drawing]:
    shares = [(name, metrics, metrics.communication_share) for name, metrics in runs]
    rows = [Bar(name, share, _percent(share), f"fill-{_colour(of)}") for name, of, share in shares if share is not None]
    unknown = [name for name, metrics, share in shares if share is None and metrics.world_size > 1]
    note = f"not known: {', '.join(unknown)}" if unknown else ""
    return [bars("Communication that no computation hides, of a step", rows, note, ends=1.0)] if rows else []


def of_ranks(entry: Entry) -> list[Drawing]:
    """Draw how ranks differ. Empty for a single rank."""
    metrics = entry.metrics
    if metrics.world_size < 2:
        return []
    times, slow = metrics.rank_times_s, metrics.straggler
    steps = {"p50": times.step_p50, "p95": times.step_p95, "slowest step": times.step_max}
    own = {"fetch": times.fetch, "forward": times.forward, "optimizer": times.optimizer}
    most = "" if slow is None else f"most: rank {slow.rank}, {slow.slowdown:.2f} × the median, in {slow.part}; "
    note = f"{most}medians; backward and communication are not in it"
    return [_per_rank("Step time per rank", steps), _per_rank("Own work of a rank in a step", own, note)]


def _per_rank(title: str, seconds: Mapping[str, Sequence[float]], note: str = "") -> Drawing:
    series = [Series(name, [(rank, time * 1e3) for rank, time in enumerate(times)]) for name, times in seconds.items()]
    return lines(title, series, "rank", "ms", least_tick=1.0, from_zero=True, note=note)


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _colour(metrics: TrainMetrics) -> int:
    kind = metrics.observed.kind
    return _KINDS.index(kind) if kind in _KINDS else len(_KINDS)


def _losses(runs: _Runs, tolerance: float | None) -> list[Drawing]:
    """Thick below thin, so that lines which coincide are all seen."""
    known = [(index, name, metrics.loss) for index, (name, metrics) in enumerate(runs) if len(metrics.loss) > 1]
    series = [Series(name, list(enumerate(loss, start=1)), "" if n else "wide", n) for n, name, loss in known]
    gaps = [abs(a - b) for _, metrics in runs for a, b in zip(metrics.loss, runs[0][1].loss, strict=False)]
    if len(series) > 1 and tolerance is not None and max(gaps) <= tolerance:  # one line, not as many as cover it
        series = [replace(series[0], name=f"all {len(series)} runs, within {tolerance:g} of each other", style="")]
    return [lines("Loss, nats per token", series, "optimizer step", "", least_tick=1.0)] if series else []


def _gaps(runs: _Runs, tolerance: float | None) -> list[Drawing]:
    first, base = runs[0]
    gaps = [[abs(a - b) for a, b in zip(metrics.loss, base.loss, strict=False)] for _, metrics in runs]
    others = [(n, name, of_run) for n, ((name, _), of_run) in enumerate(zip(runs, gaps, strict=True)) if n]
    series = [Series(name, list(enumerate(gap, start=1)), colour=n) for n, name, gap in others if len(gap) > 1]
    limits = [] if tolerance is None else [Limit(tolerance, f"tolerance {tolerance:g}")]
    title = f"Loss gap to {first}, nats per token"
    return [lines(title, series, "optimizer step", "", limits=limits, least_tick=1.0, from_zero=True)] if series else []
