"""Node x node: what each node sends to each other one, with what did not pass outlined.

Of more nodes than fit, neighbours in the order of the run share a square, which has the colour of its slowest
direction: a slow node is a dark row or column at any number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bringup.derive import pairs
from bringup.evidence.names import listed
from bringup.plan.rounds import Pair
from bringup.plan.subjects import nodes_of
from bringup.records import Observation, Outcome, Verdict
from bringup.report.charts.drawing import Box, Drawing, Shape, Squares, Text

MAX_SQUARES = 64  # on a side
MAX_NAMES = 32  # nodes whose names stand at both sides
MAX_NUMBERS = 12  # nodes up to which a square holds its number
MAX_SLOWEST = 5  # directions that are named below
STEPS = 10  # classes heat-0, the slowest, to heat-9
_SIDE = 460.0


def draw(observations: Iterable[Observation], nodes: Sequence[str], verdicts: Iterable[Verdict]) -> list[Drawing]:
    """None where no pair was measured. The scale of colours begins at 0 and ends at the fastest direction."""
    directions, _ = pairs.measured(observations)
    index = {node: number for number, node in enumerate(nodes)}
    known = {pair: seen.best for pair, seen in directions.items() if pair[0] in index and pair[1] in index}
    if not known:
        return []
    together = -(-len(nodes) // MAX_SQUARES)  # nodes of a square
    slowest: dict[tuple[int, int], tuple[float, Pair]] = {}
    for (source, target), speed in known.items():
        place = index[source] // together, index[target] // together
        slowest[place] = min(slowest.get(place, (speed, (source, target))), (speed, (source, target)))
    count = -(-len(nodes) // together)
    left = 8 + 6.3 * max(map(len, nodes)) if len(nodes) <= MAX_NAMES else 18.0
    side = min(44.0, (_SIDE - left) / count)
    most = max(known.values()) or 1.0
    bad = {
        frozenset(nodes_of(v.subject)) for v in verdicts if v.outcome is Outcome.FAIL and len(nodes_of(v.subject)) == 2
    }
    top = 18.0
    by_heat: dict[int, list[tuple[float, float]]] = {}
    above: list[Shape] = []
    for (row, column), (speed, (source, target)) in slowest.items():
        x, y = left + column * side, top + row * side
        heat = min(STEPS - 1, int(STEPS * speed / most))
        by_heat.setdefault(heat, []).append((x, y))
        words = f"{source} → {target}: {speed:.3g} GB/s"
        is_bad = frozenset((source, target)) in bad
        if is_bad or len(nodes) <= MAX_NAMES:
            above.append(Box(x, y, side, side, "outlined" if is_bad else "pointed", words))
        if len(nodes) <= MAX_NUMBERS:
            style = "on-dark" if heat < STEPS // 2 else "on-light"
            above.append(Text(x + side / 2, y + side / 2 + 4, f"{speed:.2g}", f"middle {style}"))
    shapes: list[Shape] = [Box(left, top, count * side, count * side, "nothing-seen")]
    shapes += [Squares(corners, side, f"heat-{heat}") for heat, corners in sorted(by_heat.items())]
    shapes += above
    if len(nodes) <= MAX_NAMES:
        shapes += [Text(left - 4, top + (n + 0.5) * side + 4, node, "end") for n, node in enumerate(nodes)]
    if len(nodes) <= MAX_NUMBERS:
        shapes += [Text(left + (n + 0.5) * side, top - 5, node, "middle") for n, node in enumerate(nodes)]
    else:
        shapes.append(Text(left, top - 5, "receives →", "soft"))
    bottom = top + count * side
    shapes += _scale(left, bottom + 8, most)
    width = max(left + count * side + 4, left + 250)
    return [Drawing("Bandwidth between nodes", width, bottom + 38, shapes, _note(known, nodes, together))]


def _scale(x: float, y: float, most: float) -> list[Shape]:
    boxes: list[Shape] = [Squares([(x + step * 16, y)], 16, f"heat-{step}") for step in range(STEPS)]
    return [
        *boxes,
        Text(x, y + 28, "0"),
        Text(x + 16 * STEPS, y + 28, f"{most:.3g} GB/s", "end"),
        Text(x + 16 * STEPS + 8, y + 12, "rows send", "soft"),
    ]


def _note(known: dict[Pair, float], nodes: Sequence[str], together: int) -> str:
    possible = len(nodes) * (len(nodes) - 1)
    healthy = pairs.reference({pair: pairs.Measured(speed, "", [speed]) for pair, speed in known.items()})
    slow = sorted(known.items(), key=lambda item: item[1])[:MAX_SLOWEST]
    words = [f"{len(known):,} of {possible:,} directions measured; a healthy one has {healthy:.3g} GB/s"]
    if together > 1:
        words.append(
            f"a square is the slowest direction between {together} nodes and {together} nodes, in the run's order"
        )
    named = listed([f"{source} → {target} {speed:.3g}" for (source, target), speed in slow])
    return "; ".join([*words, f"slowest: {named}"]) + "."
