"""What each node sends to each other one, as a map with what did not pass outlined.

Of a large fleet few of the pairs are measured, and a map of them is nearly empty. There each node is a square twice: by
the median of what it sends, and of what it receives. A slow node is a dark square at any number of nodes.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import median

from bringup.domains import pairs
from bringup.kernel.facts.names import listed
from bringup.kernel.plan.rounds import Pair
from bringup.kernel.plan.subjects import nodes_of
from bringup.kernel.records import Observation, Outcome, Verdict, grouped
from bringup.report.charts.drawing import CHARACTER, Box, Drawing, Shape, Squares, Text, has_place

MAX_MAP = 64  # nodes
MAX_NAMES = 32  # nodes whose names stand beside the map
MAX_NUMBERS = 12  # nodes up to which a square holds its number
MAX_SLOWEST = 5  # directions that are named below
STEPS = 10  # classes heat-0, the slowest, to heat-9
_SIDE, _TOP = 460.0, 18.0
_OF_A_LINE, _GAP = 64, 0.8  # nodes of a large fleet; between them
_Speeds = Mapping[Pair, float]


def draw(observations: Iterable[Observation], nodes: Sequence[str], verdicts: Iterable[Verdict]) -> list[Drawing]:
    """Draw the pairs; empty where none was measured. The scale of colours begins at 0 and ends at the fastest square,
    or at the floor where no square reaches it."""
    observed, judged = list(observations), list(verdicts)
    directions, _ = pairs.measured(observed)
    members = frozenset(nodes)
    known = {pair: seen.best for pair, seen in directions.items() if members.issuperset(pair) and has_place(seen.best)}
    if not known:
        return []
    bad = {frozenset(nodes_of(v.subject)) for v in judged if v.outcome is Outcome.FAIL}
    limits = [v.limit for v in judged if v.gate == "nccl.pair.slowest" and isinstance(v.limit, int | float)]
    floor = float(limits[0]) if limits else 0.0
    bad |= {frozenset(pair) for pair, speed in known.items() if speed < floor}
    draw_all = _map if len(nodes) <= MAX_MAP else _by_node
    return [draw_all(known, nodes, bad, floor, _note(known, nodes, floor, pairs.are_directed(observed)))]


def _map(known: _Speeds, nodes: Sequence[str], bad: Collection[frozenset[str]], floor: float, note: str) -> Drawing:
    index = {node: number for number, node in enumerate(nodes)}
    left = 8 + CHARACTER * max(map(len, nodes)) if len(nodes) <= MAX_NAMES else 18.0
    side, most = min(44.0, (_SIDE - left) / len(nodes)), max(floor, *known.values()) or 1.0
    places, above = list[tuple[float, float, float]](), list[Shape]()
    for (source, target), speed in known.items():
        x, y = left + index[target] * side, _TOP + index[source] * side
        places.append((x, y, speed))
        is_bad = frozenset((source, target)) in bad
        if is_bad or len(nodes) <= MAX_NAMES:
            words = f"{source} → {target}: {speed:.3g} GB/s"
            above.append(Box(x, y, side, side, "outlined" if is_bad else "pointed", words))
        if len(nodes) <= MAX_NUMBERS:
            style = "on-dark" if _heat(speed, most) < STEPS // 2 else "on-light"
            above.append(Text(x + side / 2, y + side / 2 + 4, f"{speed:.2g}", f"middle {style}"))
    whole = len(nodes) * side
    shapes: list[Shape] = [Box(left, _TOP, whole, whole, "nothing-seen"), *_squares(places, side, most), *above]
    if len(nodes) <= MAX_NAMES:
        shapes += [Text(left - 4, _TOP + (n + 0.5) * side + 4, node, "end") for n, node in enumerate(nodes)]
    if len(nodes) <= MAX_NUMBERS:
        shapes += [Text(left + (n + 0.5) * side, _TOP - 5, node, "middle") for n, node in enumerate(nodes)]
    else:
        shapes.append(Text(left, _TOP - 5, "receives →", "soft"))
    shapes += _scale(left, _TOP + whole + 8, most, "rows send")
    return Drawing("Bandwidth between nodes", left + max(whole + 4, 250), _TOP + whole + 38, shapes, note)


def _by_node(known: _Speeds, nodes: Sequence[str], bad: Collection[frozenset[str]], floor: float, note: str) -> Drawing:
    side, lines = _SIDE / _OF_A_LINE, -(-len(nodes) // _OF_A_LINE)
    shapes, y, most = list[Shape](), _TOP, floor
    for end, what in ((0, "sends"), (1, "receives")):
        speeds = grouped((pair[end], speed) for pair, speed in known.items())
        medians = {node: median(values) for node, values in speeds.items()}
        most = max(most, *medians.values()) or 1.0
        slowest = sorted(medians, key=lambda node: medians[node])[:MAX_SLOWEST]
        shapes.append(Text(0, y - 5, f"what a node {what}, median of its directions", "soft"))
        places, above = list[tuple[float, float, float]](), list[Shape]()
        for number, node in enumerate(nodes):
            if node in medians:
                x, below = number % _OF_A_LINE * side, y + number // _OF_A_LINE * side
                places.append((x, below, medians[node]))
                is_bad = frozenset((node,)) in bad
                if is_bad or node in slowest:
                    words = f"{node} {what} {medians[node]:.3g} GB/s"
                    above.append(Box(x, below, side, side, "outlined" if is_bad else "pointed", words))
        shapes += [*_squares(places, side - _GAP, most), *above]
        y += lines * side + _TOP + 4
    shapes += _scale(0, y - _TOP, most, f"{_OF_A_LINE} nodes in a line, in the order of the run")
    return Drawing("Bandwidth of each node", _SIDE, y + 14, shapes, note)


def _heat(speed: float, most: float) -> int:
    return min(STEPS - 1, int(STEPS * speed / most))


def _squares(places: Iterable[tuple[float, float, float]], side: float, most: float) -> list[Shape]:
    """places: x, y, GB/s. All of one colour are one shape."""
    by_heat = grouped((_heat(speed, most), (x, y)) for x, y, speed in places)
    return [Squares(corners, side, f"heat-{heat}") for heat, corners in sorted(by_heat.items())]


def _scale(x: float, y: float, most: float, words: str) -> list[Shape]:
    end = x + 16 * STEPS
    return [
        *(Box(x + step * 16, y, 16, 16, f"heat-{step}") for step in range(STEPS)),
        Text(x, y + 28, "0"),
        Text(end, y + 28, f"{most:.3g} GB/s", "end"),
        Text(end + 8, y + 12, words, "soft"),
    ]


def _note(known: _Speeds, nodes: Sequence[str], floor: float, is_directed: bool) -> str:
    ways = {pairs.way_in_words(pair, is_directed): speed for pair, speed in sorted(known.items())}
    possible = len(nodes) * (len(nodes) - 1) // (1 if is_directed else 2)
    slowest = sorted(ways, key=lambda way: ways[way])[:MAX_SLOWEST]
    named = listed([f"{way.replace('->', ' → ')} {ways[way]:.3g}" for way in slowest])
    needed = f"; {floor:.3g} GB/s are needed" if floor else ""
    what = "directions" if is_directed else "pairs"
    return f"{len(ways):,} of {possible:,} {what} measured{needed}; slowest: {named}."
