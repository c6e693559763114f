"""Finds the node, path or block of nodes that explains the slow pairs. Pure.

One number decides: how far a direction is below the others of its round, in units of the run's noise. An explanation (a
node that sends slowly, a path between two nodes, a block of neighbours with a slow uplink) is a set of directions that
share one loss. It is named if noise is very unlikely to cause that loss in a fleet of this size, and if no other
explanation of the same directions is nearly as good. An explanation that is neither named nor ruled out is undecided;
the next round (next_round.py) tests it.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median, median_low
from typing import Literal

from bringup.domains.pair_noise import LEAST_LOSS, LEAST_NOISE, Measurements, Round, measurements, threshold
from bringup.kernel.plan.rounds import Pair
from bringup.kernel.records import grouped

Kind = Literal["node", "path", "block"]
Way = Literal["out", "in", "both"]
WAYS: tuple[Way, ...] = ("both", "out", "in")

FALSE_NAMES = 0.01  # expected per run: healthy nodes or paths that are named
FALSE_SUSPECTS = 0.1  # expected per run: healthy ones for which a further round is measured
LEAST_LEVEL = 0.06  # if a whole round is slower by this share, the distance of its pairs matters
MARGIN = 3.0  # an explanation must be e^3 = 20 times as likely as any other explanation of the same directions
SLOW = 2.0  # noises below the others: directions that need an explanation
EVEN = 3.5  # noises by which a slow node may be faster with its best partner than with the others
UNEVEN = 0.3  # or this share of its loss
LEAST_BLOCK = 4  # nodes: fewer neighbours that are slow towards the others are nodes or paths


@dataclass(frozen=True)
class Culprit:
    """A slow node, path or block. names: the node, the two ends of a path (from, to), or the block's nodes, in
    order."""

    kind: Kind
    names: tuple[str, ...]
    way: Way
    loss: float  # share of the usual speed: 0.3 is a third slower

    @property
    def ends(self) -> frozenset[str]:
        return frozenset(self.names)


@dataclass(frozen=True)
class Distance:
    """Rounds of distant pairs were slower than rounds of near pairs: by design, or because of a slow trunk."""

    fast_up_to: int  # pairs inside blocks of so many nodes are fast
    slow_from: int  # pairs that leave blocks of so many nodes are slow
    loss: float

    @property
    def is_found(self) -> bool:
        return self.fast_up_to == self.slow_from


@dataclass
class Culprits:
    nodes: list[Culprit] = field(default_factory=list)
    links: list[Culprit] = field(default_factory=list)  # paths and blocks
    distance: Distance | None = None
    undecided: list[list[Culprit]] = field(default_factory=list)  # explanations of the same directions, likeliest first
    noise: float = LEAST_NOISE  # of one direction, as a share of its speed


@dataclass(frozen=True)
class _Case:
    """An explanation and the directions that it would explain."""

    culprit: Culprit
    pairs: frozenset[Pair]
    gain: float  # log of how much likelier the measurements are with it than without


class _Search:
    """Takes the best explanation, removes its directions, and continues with the rest."""

    def __init__(self, nodes: Sequence[str], measured: Measurements) -> None:
        self.m = measured
        self.place = {node: number for number, node in enumerate(nodes)}
        self.nodes = nodes
        self.open = dict(measured.z)  # not explained yet
        self.of = dict[str, list[Pair]]((node, []) for node in nodes) | grouped(
            (node, pair) for pair in measured.z for node in pair
        )
        roles = 1 if measured.one_way else 3
        of_node, of_path = (threshold(FALSE_NAMES, tests) ** 2 / 2 for tests in (roles * len(nodes), len(measured.z)))
        self.named = {"node": of_node, "path": of_path, "block": of_node}
        self.suspect = threshold(FALSE_SUSPECTS, max(roles * len(nodes), len(measured.z))) ** 2 / 2
        self.culprits = Culprits(noise=measured.noise)

    def run(self) -> Culprits:
        while (best := self._best()) is not None:
            rivals = [case for case in self._cases(best.pairs) if self._rival(case, best)]
            if self._sure(best, rivals):
                (self.culprits.nodes if best.culprit.kind == "node" else self.culprits.links).append(best.culprit)
            else:
                self.culprits.undecided.append([best.culprit, *(case.culprit for case in rivals)])
            self.open = {pair: z for pair, z in self.open.items() if pair not in best.pairs}
        return self.culprits

    def _best(self) -> _Case | None:
        slow = [pair for pair, z in self.open.items() if z < -SLOW]
        cases = [*self._cases(slow), *self._blocks(slow)]
        best = max(cases, key=lambda case: (case.gain, len(case.pairs)), default=None)
        return best if best is not None and best.gain > self.suspect else None

    def _cases(self, pairs: Iterable[Pair]) -> Iterator[_Case]:
        """Nodes and paths that would explain at least one of these directions."""
        for node in dict.fromkeys(node for pair in pairs for node in pair):
            for way in WAYS[:1] if self.m.one_way else WAYS:
                open_pairs = [pair for pair in self.of[node] if pair in self.open and _is_way(pair, node, way)]
                if case := self._case("node", (node,), way, open_pairs):
                    yield case
        for a, b in dict.fromkeys(pairs):
            if (a, b) not in self.open:
                continue
            if case := self._case("path", (a, b), "both" if self.m.one_way else "out", [(a, b)]):
                yield case
            if (b, a) in self.open and (case := self._case("path", (a, b), "both", [(a, b), (b, a)])):
                yield case

    def _case(self, kind: Kind, names: tuple[str, ...], way: Way, pairs: Sequence[Pair]) -> _Case | None:
        values = [self.open[pair] for pair in pairs]
        if not values:
            return None
        mean = fmean(values)
        loss = self.m.loss(median(values))
        if mean >= 0 or loss < LEAST_LOSS:
            return None
        if kind == "node" and max(values) - mean > max(EVEN, UNEVEN * -mean):
            return None  # a slow node is slow with every partner
        gain = len(values) * mean**2 / 2
        return _Case(Culprit(kind, names, way, round(loss, 4)), frozenset(pairs), gain)

    def _rival(self, case: _Case, best: _Case) -> bool:
        same = case.culprit.kind == best.culprit.kind and case.culprit.ends == best.culprit.ends
        inside = best.culprit.kind == "block" or (best.culprit.kind == "path" and case.culprit.kind == "path")
        return not same and not inside and bool(case.pairs & best.pairs) and case.gain > best.gain - MARGIN

    def _sure(self, best: _Case, rivals: Sequence[_Case]) -> bool:
        kind = best.culprit.kind
        if rivals or best.gain < self.named[kind]:
            return False
        if kind == "node":  # with partners that are slow with all others, too, it could be any of them
            name = best.culprit.names[0]
            cleared = any(self._is_fast_elsewhere(node, best.pairs) for node in self._partners(name, best.pairs))
            return cleared and len(self._partners(name)) > 1
        if kind == "path":  # once may have been a moment; and both ends have to be fast elsewhere
            again = all(self.m.rounds[pair] > 1 for pair in best.pairs)
            return again and all(self._is_fast_elsewhere(node, best.pairs) for node in best.culprit.names)
        # while each of its nodes has one partner outside, it could as well be the block where those are
        return len(best.pairs) >= 1.5 * len(best.culprit.names) and not self._twin(best)

    def _partners(self, node: str, pairs: Iterable[Pair] | None = None) -> set[str]:
        return {partner for pair in (self.of[node] if pairs is None else pairs) for partner in pair} - {node}

    def _is_fast_elsewhere(self, node: str, pairs: frozenset[Pair]) -> bool:
        """In the role that it has in the slow directions. Fast: nearer to the usual than to them."""
        fast = min(-SLOW, fmean(self.m.z[pair] for pair in pairs) / 2)
        roles = [0 if pair[0] == node else 1 for pair in pairs if node in pair]
        others = [pair for pair in self.of[node] if pair not in pairs and self.m.z[pair] > fast]
        return all(any(self.m.one_way or pair[role] == node for pair in others) for role in roles)

    def _blocks(self, slow: Sequence[Pair]) -> Iterator[_Case]:
        """Neighbours in the list of nodes that are fast with each other and slow with all others: a slow way out."""
        clear = [pair for pair in slow if self.open[pair] < -SLOW - 0.5]
        if len(clear) < LEAST_BLOCK:
            return
        often = Counter(self.place[node] for pair in clear for node in pair)
        spans = {  # those inside are slow more often than their partners outside
            span
            for least in range(1, min(max(often.values()), 4) + 1)
            for gap in (1, 2, 4)
            for span in _runs(sorted(place for place in often if often[place] >= least), gap)
            if span[1] - span[0] >= LEAST_BLOCK
        }
        for first, last in sorted(spans):
            cases = filter(None, (self._block(*span) for span in _near(first, last, len(self.nodes))))
            if best := max(cases, key=lambda case: case.gain, default=None):
                yield best

    def _block(self, low: int, high: int) -> _Case | None:
        names = tuple(self.nodes[low:high])
        members, inside, crossing = set(names), list[Pair](), list[Pair]()
        for pair in (pair for node in names for pair in self.of[node]):
            (inside if members.issuperset(pair) else crossing).append(pair)
        out, into = ([pair for pair in crossing if pair in self.open and pair[end] in members] for end in (0, 1))
        speeds = [self.open[pair] for pair in out + into]
        nearer = min(-SLOW, fmean(speeds) / 2) if speeds else -SLOW
        fast = {node for pair in inside for node in pair if self.m.z[pair] > nearer}
        exceptions = 2 if len(names) > 2 * LEAST_BLOCK else 0  # at its ends: their neighbour is outside
        if len(fast) < len(names) - exceptions or fmean(self.m.z[pair] for pair in inside) < -1:
            return None
        ways: list[tuple[Way, list[Pair]]] = [("both", out + into)]
        if not self.m.one_way:
            ways += [("out", out), ("in", into)]
        cases = filter(None, (self._case("block", names, way, pairs) for way, pairs in ways))
        whole = (case for case in cases if self._is_even(case) and _is_spread(case))
        return max(whole, key=lambda case: case.gain, default=None)

    def _is_even(self, case: _Case) -> bool:
        """All that leave the block are slow, but for a tenth of them, which noise may have lifted."""
        values = sorted((self.open[pair] for pair in case.pairs), reverse=True)
        mean = fmean(values)
        return values[len(values) // 10] - mean <= max(EVEN, UNEVEN * -mean) and mean < -1

    def _twin(self, best: _Case) -> bool:
        """Another block explains the same: the one at the other end, while only these two were paired."""
        outside = [node for pair in best.pairs for node in pair if node not in best.culprit.ends]
        places = sorted({self.place[node] for node in outside})
        twins = [self._block(*span) for gap in (1, 2, 4) for span in _runs(places, gap)]
        half_size = len(best.culprit.names) / 2
        least = best.gain - max(MARGIN, best.gain / 4)
        return any(twin and len(twin.culprit.names) >= half_size and twin.gain > least for twin in twins)


def _is_way(pair: Pair, node: str, way: str) -> bool:
    return way == "both" or pair[0 if way == "out" else 1] == node


def _is_spread(case: _Case) -> bool:
    """Nearly all of the block's nodes say so, and no node outside of it has a large part in that."""
    members = case.culprit.ends
    counts = Counter(node for pair in case.pairs for node in pair)
    most = max(count for node, count in counts.items() if node not in members)
    return most <= max(1, len(case.pairs) // 4) and len(members & counts.keys()) >= 0.75 * len(members)


def _runs(places: Sequence[int], gap: int) -> list[tuple[int, int]]:
    """Return [first, last) of places that follow each other with no more than `gap` - 1 others between."""
    spans: list[tuple[int, int]] = []
    for place in places:
        if spans and place - spans[-1][1] < gap:
            spans[-1] = (spans[-1][0], place + 1)
        else:
            spans.append((place, place + 1))
    return spans


def _near(first: int, last: int, count: int) -> Iterator[tuple[int, int]]:
    """Spans whose ends differ by one or two."""
    for low in range(max(0, first - 2), first + 3):
        for high in range(last - 2, min(count, last + 2) + 1):
            if high - low >= LEAST_BLOCK and high - low <= count - 2:
                yield low, high


def _bits(place: Mapping[str, int], pair: Pair) -> int:
    """k: the pair stays in a block of 2^k nodes of the list, counted from its start, and leaves its half."""
    return (place[pair[0]] ^ place[pair[1]]).bit_length()


def _far(
    nodes: Sequence[str], rounds: Sequence[Round], centres: Sequence[float | None]
) -> tuple[Distance, Callable[[Pair], float | None]] | None:
    """Where in the list of nodes whole rounds begin to be slower, and what is usual for a pair on either side."""
    place = {node: number for number, node in enumerate(nodes)}
    measured = [(pairs, centre) for pairs, centre in zip(rounds, centres, strict=True) if pairs and centre is not None]
    known = [(median_low(_bits(place, pair) for pair in pairs), centre) for pairs, centre in measured]
    top = max((centre for _, centre in known), default=0.0)
    slow = [(bits, centre) for bits, centre in known if 1 - math.exp(centre - top) >= LEAST_LEVEL]
    fast = [bits for bits, centre in known if 1 - math.exp(centre - top) < LEAST_LEVEL]
    if not slow:
        return None
    first = min(bits for bits, _ in slow)
    # in a mixed round, the near pairs are as fast as the usual ones
    near = max((bits for bits in fast if bits < first), default=None)
    if near is None:
        return None  # near or far, it was another thing that changed
    usual, far = top, median(centre for _, centre in slow)
    distance = Distance(2**near, 2 ** (first - 1), round(1 - math.exp(far - usual), 4))

    def usual_of(pair: Pair) -> float | None:
        bits = _bits(place, pair)
        return far if bits >= first else usual if bits <= near else None

    return distance, usual_of


def among(nodes: Sequence[str], rounds: Sequence[Round]) -> list[Round]:
    """Keep only what was measured between two of these nodes."""
    known = set(nodes)
    return [{pair: speed for pair, speed in speeds.items() if known.issuperset(pair)} for speeds in rounds]


def culprits(nodes: Sequence[str], rounds: Sequence[Round]) -> Culprits:
    """Find what is slow, by all rounds so far."""
    rounds = among(nodes, rounds)
    if not any(rounds):
        return Culprits()
    measured = measurements(rounds)
    far = _far(nodes, rounds, measured.centres)
    if far is not None:
        measured = measurements(rounds, far[1])
    result = _Search(nodes, measured).run()
    result.distance = None if far is None else far[0]
    return result


def words(result: Culprits, nodes: Sequence[str]) -> list[str]:
    """Say what is known after these rounds, a phrase each. Never empty."""
    phrases = [f"{_name(each)} {_ways(each)} at {1 - each.loss:.2f}" for each in (*result.nodes, *result.links)]
    for cases in result.undecided:
        phrases.append("undecided: " + " or ".join(dict.fromkeys(_name(case) for case in cases[:4])))
    if (far := result.distance) is not None:
        exact = f"{far.slow_from}" if far.is_found else f"between {far.fast_up_to} and {far.slow_from}"
        slower = f"pairs that leave a block of {exact} nodes of the list are slower by {far.loss:.0%}"
        phrases.append(f"{slower}: by design, or a slow link between the blocks")
    # 1.28: of nine in ten, the mean of two pairs lies beyond the threshold
    least = 1 - math.exp(-result.noise * (threshold(FALSE_NAMES, len(nodes)) + 1.28) / math.sqrt(2))
    return [
        *(phrases or ["no node and no link that was exercised stands out"]),
        f"speeds scatter by {result.noise:.1%}: two pairs show a node that loses {max(LEAST_LOSS, least):.0%} or more",
    ]


def _name(culprit: Culprit) -> str:
    if culprit.kind == "node":
        return culprit.names[0]
    if culprit.kind == "path":
        return ("--" if culprit.way == "both" else "->").join(culprit.names)
    return f"the way out of {culprit.names[0]} to {culprit.names[-1]} ({len(culprit.names)} nodes)"


def _ways(culprit: Culprit) -> str:
    if culprit.kind == "path":
        return "is"
    out, into = ("sends", "receives") if culprit.kind == "node" else ("is, outwards,", "is, inwards,")
    return {"both": "is", "out": out, "in": into}[culprit.way]
