"""The collectives of a run: a row for each size and scale, as nccl-tests prints them, beside what is expected."""

from collections.abc import Mapping, Sequence

from bringup.kernel.characters import many
from bringup.kernel.plan.subjects import scale_nodes
from bringup.kernel.records import Observation, Verdict
from bringup.readers import curve

HEADER = ("collective", "size", "on", "time", "algbw GB/s", "busbw GB/s", "expected")
Row = tuple[str, str, str, str, str, str]


def tables(observations: Sequence[Observation], verdicts: Sequence[Verdict]) -> dict[str, list[Row]]:
    """Return collective -> its rows, by size, then scale. algbw: size over time; the slowest of repetitions counts."""
    times: dict[tuple[str, str], float] = {}
    for seen in observations:
        if isinstance(seen.value, int | float) and seen.quantity.startswith("nccl."):
            key = seen.quantity, seen.subject
            times[key] = max(float(seen.value), times.get(key, 0.0))
    ordered: dict[str, list[tuple[int, int, Row]]] = {}
    limits = _limits(verdicts)
    for scale, by_name in curve.curves(list(observations)).items():
        for name, points in by_name.items():
            if name.startswith("groups"):  # groups.all_gather: not of all ranks
                continue
            for size, busbw, seen in points:
                at = seen.quantity.partition("@")[2]
                us = times.get((f"nccl.{name}.time@{at}", scale))
                took = "unknown" if us is None else _time(us)
                algbw = f"{size / us / 1e3:.3g}" if us else "unknown"
                row = (at, scale, took, algbw, f"{busbw:.3g}", limits.get((f"{name}@{at}", scale), ""))
                ordered.setdefault(name, []).append((size, scale_nodes(scale), row))
    return {name: [row for _, _, row in sorted(known)] for name, known in ordered.items()}


def time_spent(observations: Sequence[Observation]) -> str:
    """Say how often ranks were started, and where their time went; empty: nothing of it was written."""
    starts = [seen for seen in observations if seen.quantity == "nccl.start.seconds"]
    began, measured = (_sum(observations, f"nccl.time.{part}") for part in ("start", "measure"))
    if not starts or not measured:
        return ""
    ranks = ", ".join(dict.fromkeys(seen.why or "" for seen in starts))
    waited = max(0.0, _sum(starts, "nccl.start.seconds") - began - measured)
    times = f"{began:.1f} s to start, {measured:.1f} s measured, {waited:.1f} s waited"
    return f"{times}, in {many(len(starts), 'start')} of {ranks} ranks"


def _sum(observations: Sequence[Observation], quantity: str) -> float:
    values = (seen.value for seen in observations if seen.quantity == quantity)
    return sum(value for value in values if isinstance(value, float))


def rows(tables: Mapping[str, Sequence[Row]], whole: bool) -> list[tuple[str, ...]]:
    """Put the collective in front of rows. Not whole: of each the rows with a limit, else those of the largest size."""
    return [
        (name, *row)
        for name, known in tables.items()
        for row in known
        if whole or row[-1] or (row[0] == known[-1][0] and not any(other[-1] for other in known))
    ]


def _limits(verdicts: Sequence[Verdict]) -> dict[tuple[str, str], str]:
    """Return the limits, `busbw ≥ 0.03`, of `all_reduce@16MiB` and a scale, with the outcome where it did not pass."""
    limits: dict[tuple[str, str], list[str]] = {}
    for verdict in verdicts:
        name, _, what = verdict.gate.removeprefix("nccl.").rpartition(".")
        if verdict.at is not None and isinstance(verdict.limit, int | float) and what in ("busbw", "latency"):
            sign = "≥" if verdict.rule == "at_least" else "≤"
            value = _time(float(verdict.limit)) if what == "latency" else f"{verdict.limit:g}"
            outcome = "" if verdict.outcome.is_quiet else f" {verdict.outcome.upper()}"
            words = f"{'time' if what == 'latency' else 'busbw'} {sign} {value}{outcome}"
            limits.setdefault((f"{name}@{verdict.at}", verdict.subject), []).append(words)
    return {key: ", ".join(words) for key, words in limits.items()}


def _time(us: float) -> str:
    """Write a time: `15.2 us`, `2.36 ms`, `1.2 s`."""
    for unit, factor in (("s", 1e6), ("ms", 1e3)):
        if us >= factor:
            return f"{us / factor:.3g} {unit}"
    return f"{us:.3g} us"
