"""Bus bandwidth over size, a figure for each collective and a line for each scale, beside what is expected. And all
bandwidths against what is needed: a rail for each operation and scale, with a tick at its floor."""

import math
from collections.abc import Iterable, Mapping, Sequence

from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.plan import catalogue, ceiling
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.subjects import scale_nodes
from bringup.kernel.records import Observation, Outcome, Verdict, grouped
from bringup.readers import curve
from bringup.report.charts.drawing import COLOURS, Bar, Drawing, Limit, Series, bars, has_place, lines, short

_MOST_SIZES = 5  # on the axis
MAX_FLOORS = 2
_Points = Mapping[str, Sequence[curve.Point]]  # scale -> points


def draw(observations: Iterable[Observation], profile: profiles.Profile) -> list[Drawing]:
    """Draw bus bandwidth over size. Empty where no collective was measured at two sizes."""
    by_scale = curve.curves(list(observations))
    drawings = []
    for name in sorted({name for by_name in by_scale.values() for name in by_name}):
        drawn = {scale: _drawn(by_name.get(name, [])) for scale, by_name in by_scale.items()}
        if several := {scale: points for scale, points in drawn.items() if len(points) > 1}:
            drawings.append(_collective(name, several, profile))
    return drawings


def _drawn(points: Sequence[curve.Point]) -> list[curve.Point]:
    """Return the points that an axis of powers of ten has: above 0."""
    return [(size, speed, seen) for size, speed, seen in points if speed > 0 and has_place(speed) and has_place(size)]


def _collective(name: str, by_scale: _Points, profile: profiles.Profile) -> Drawing:
    scales = sorted(by_scale, key=scale_nodes)[-COLOURS:]  # the widest ones
    sizes = {size: seen.quantity.partition("@")[2] for scale in scales for size, _, seen in by_scale[scale]}
    series = [Series(scale, [(float(size), speed) for size, speed, _ in by_scale[scale]]) for scale in scales]
    gate = f"nccl.{name}.busbw"
    known = [*_floors(profile, gate, scales, sizes), *_ceilings(profile, gate, scales[-1])]
    limits = [limit for limit in known if limit.value > 0 and has_place(limit.value)]
    ticks = [(float(size), sizes[size]) for size in sorted(sizes)[:: -(-len(sizes) // _MOST_SIZES)]]
    note = "" if limits else "No limit is set for it."
    return lines(name, series, "size of a message", "GB/s", limits=limits, ticks=ticks, is_log=True, note=note)


def _floors(profile: profiles.Profile, gate: str, scales: Sequence[str], sizes: Mapping[int, str]) -> list[Limit]:
    """Return each floor at the size that it holds for; it says nothing of the others."""
    entry = profile.expect.get(gate)
    size = None if entry is None else next((size for size, words in sizes.items() if words == entry.at), None)
    if entry is None or size is None:
        return []
    limits = [(profile.limit(gate, scale_nodes(scale)).value, scale) for scale in scales]
    shown = list(grouped((float(limit), scale) for limit, scale in limits if isinstance(limit, int | float)).items())
    if len(shown) > MAX_FLOORS:  # one for each scale: those of the narrowest and the widest say where the others are
        shown = [shown[0], shown[-1]]
    return [
        Limit(value, f"expected ≥ {value:g} at {entry.at}{'' if len(of) == len(scales) else ', ' + of[-1]}", size)
        for value, of in shown
    ]


def _ceilings(profile: profiles.Profile, gate: str, scale: str) -> list[Limit]:
    if gate not in ceiling.OF_GATE:
        return []
    known = ceiling.ceiling(gate, profile.machine, scale_nodes(scale))
    return [] if isinstance(known, str) else [Limit(known.gb_per_s, str(known))]


MOST_RAILS = 14  # rails: the worst ones, beside their floors
_NAMES = {"nccl.pair.slowest": "slowest pair"}


def against_floors(verdicts: Iterable[Verdict]) -> Drawing | None:
    """Draw bandwidths between GPUs or nodes, those that failed first. None where none was measured."""
    measured = grouped(((verdict.gate, verdict.subject), verdict) for verdict in verdicts if _is_bandwidth(verdict))
    known = [min(several, key=_over_its_floor) for several in measured.values()]  # of one that two steps measured
    if not known:
        return None
    worst = sorted(known, key=_over_its_floor)[:MOST_RAILS]
    kept = [verdict for verdict in known if any(verdict is other for other in worst)]
    shown = sorted(kept, key=lambda verdict: verdict.outcome is not Outcome.FAIL)
    left = f"{len(known) - len(shown)} more, which are further above their floors" if len(known) > len(shown) else ""
    title = "Bandwidth against what is needed, GB/s (log scale)"
    return bars(title, [_rail(verdict) for verdict in shown], left, width=560.0, is_log=True)


def _is_bandwidth(verdict: Verdict) -> bool:
    """Say whether it is the bandwidth of a scale or of the slowest pair: between GPUs or nodes, not of storage."""
    gate = catalogue.GATES.get(verdict.gate)
    of_fabric = verdict.gate.startswith("nccl.") and gate is not None and gate.per not in ("node", "rank")
    is_judged = verdict.unit == "GB/s" and verdict.outcome is not Outcome.INCOMPLETE
    return of_fabric and is_judged and _speed(verdict) > 0 and has_place(_speed(verdict))


def _speed(verdict: Verdict) -> float:
    return float(verdict.value) if is_number(verdict.value) else 0.0


def _floor(verdict: Verdict) -> float | None:
    limit = verdict.limit
    return float(limit) if verdict.rule == "at_least" and is_number(limit) and limit > 0 else None


def _over_its_floor(verdict: Verdict) -> float:
    """value / floor; infinite without one."""
    floor = _floor(verdict)
    return math.inf if floor is None else _speed(verdict) / floor


def _rail(verdict: Verdict) -> Bar:
    value, floor = _speed(verdict), _floor(verdict)
    name = _NAMES.get(verdict.gate) or verdict.gate.removeprefix("nccl.").removesuffix(".busbw").replace(".", " ")
    where = "" if verdict.subject == "job" else f", {verdict.subject.replace('-', ' ')}"
    needed = "no limit" if floor is None else f"of ≥ {short(floor)}"
    return Bar(f"{name}{where}", value, f"{short(value)} {needed}", f"fill-{verdict.outcome}", floor)
