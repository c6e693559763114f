"""Bus bandwidth over size, a figure for each collective and a line for each scale, beside what is expected."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from bringup.evidence import curve
from bringup.plan import ceiling
from bringup.plan import profile as profiles
from bringup.plan.subjects import scale_nodes
from bringup.records import Observation
from bringup.report.charts.drawing import COLOURS, Drawing, Limit, Series, has_place, lines

_MOST_SIZES = 5  # on the axis
MAX_FLOORS = 2
_Points = Mapping[str, Sequence[curve.Point]]  # scale -> points


def draw(observations: Iterable[Observation], profile: profiles.Profile) -> list[Drawing]:
    """Draw bus bandwidth over size. Empty where no collective was measured at two sizes."""
    by_scale = curve.curves(list(observations))
    names = sorted({name for by_name in by_scale.values() for name in by_name})
    return [
        _collective(name, points, profile)
        for name in names
        if (
            points := {
                scale: known for scale, by_name in by_scale.items() if len(known := _drawn(by_name.get(name, []))) > 1
            }
        )
    ]


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
    shown = sorted(sizes)[:: -(-len(sizes) // _MOST_SIZES)]
    return lines(
        name,
        series,
        "size of a message",
        "GB/s",
        limits=limits,
        ticks=[(float(size), sizes[size]) for size in shown],
        is_log=True,
        note="" if limits else "The profile expects no number of it.",
    )


def _floors(profile: profiles.Profile, gate: str, scales: Sequence[str], sizes: Mapping[int, str]) -> list[Limit]:
    """Return each floor at the size that it holds for; it says nothing of the others."""
    entry = profile.expect.get(gate)
    size = None if entry is None else next((size for size, words in sizes.items() if words == entry.at), None)
    if entry is None or size is None:
        return []
    by_value: dict[float, list[str]] = {}
    for scale in scales:
        limit = profile.limit(gate, scale_nodes(scale)).value
        if isinstance(limit, int | float):
            by_value.setdefault(float(limit), []).append(scale)
    shown = [*by_value.items()]
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
