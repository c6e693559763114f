"""Chooses the pairs of the next round from the results so far. Pure and deterministic.

Round 1: neighbours in the list of nodes. Round 2: nodes of slow pairs are paired with nodes of the fastest pairs, all
others with the node half a list away, to use every uplink of every block. Further rounds are measured only while
something is open: a node that was idle and has one partner only, a slow direction with several explanations, or a
distance beyond which pairs are slower. All nodes that are not known to be slow take part in every round, because a less
busy network would look faster.
"""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from bringup.domains.localise import Culprit, among, culprits
from bringup.domains.pair_noise import Round, measurements
from bringup.kernel.plan.rounds import Pair, neighbours

SUSPECT = 1.5  # noises below the others: after one round, the nodes of such a pair are paired with those of the fastest


def most_rounds(nodes: Sequence[str]) -> int:
    """Return the most rounds: two for a node, and log2 N more for open questions."""
    return 2 + math.ceil(math.log2(max(2, len(nodes))))


def next_round(nodes: Sequence[str], measured: Sequence[Round]) -> list[Pair]:
    """Return the pairs of the next round; empty if nothing is open or the most rounds were measured."""
    if not measured:
        return neighbours(nodes)
    measured = among(nodes, measured)
    partners: dict[str, set[str]] = defaultdict(set)
    for pairs in measured:
        for a, b in pairs:
            partners[a].add(b)
            partners[b].add(a)
    if len(measured) >= most_rounds(nodes) or len(nodes) < 3:
        return []
    if len(measured) == 1:
        return _Pairing(nodes, partners, len(measured)).made(*_second(nodes, measured[0], partners), slow=())
    known = culprits(nodes, measured)
    named = {name for culprit in known.nodes for name in culprit.names}
    too_few = [node for node in nodes if len(partners[node]) < min(2, len(nodes) - 1) and node not in named]
    searched = known.distance is not None and not known.distance.is_found
    if not too_few and not known.undecided and not searched:
        return []
    in_doubt, again = _wanted(known.undecided, named)
    helpers = [node for node in nodes if node not in named and node not in in_doubt]
    block = 0
    if known.distance is not None and searched:
        low, high = known.distance.fast_up_to.bit_length() - 1, known.distance.slow_from.bit_length() - 1
        block = 2 ** ((low + high) // 2)
    pairing = _Pairing(nodes, partners, len(measured))
    return pairing.made([*too_few, *in_doubt], helpers, again=again, slow=named, block=block)


def _second(nodes: Sequence[str], first: Round, partners: dict[str, set[str]]) -> tuple[list[str], list[str]]:
    """Return (nodes that need a good partner, good nodes), the slowest and the fastest pair first."""
    z = measurements([first]).z
    worst: dict[frozenset[str], float] = {}
    for pair, value in z.items():
        worst[frozenset(pair)] = min(value, worst.get(frozenset(pair), math.inf))
    order = {node: number for number, node in enumerate(nodes)}
    ranked = sorted(worst, key=lambda pair: (worst[pair], min(order[node] for node in pair)))
    in_order = [sorted(pair, key=lambda node: order[node]) for pair in ranked]
    slow = [pair for pair in in_order if worst[frozenset(pair)] < -SUSPECT]
    fast = [pair for pair in reversed(in_order) if worst[frozenset(pair)] >= -SUSPECT]
    idle = [node for node in nodes if not partners[node]]
    return [*idle, *(node for pair in slow for node in pair)], [node for pair in fast for node in pair]


def _wanted(undecided: Iterable[Sequence[Culprit]], named: set[str]) -> tuple[list[str], list[Pair]]:
    """Nodes that need another good partner, and pairs that must be measured again."""
    in_doubt: dict[str, None] = {}
    again: dict[frozenset[str], Pair] = {}
    for cases in undecided:
        blocks = [case for case in cases if case.kind == "block"]
        suspects = [case.names[0] for case in cases if case.kind == "node"]
        if blocks:
            in_doubt.update(dict.fromkeys(blocks[0].names))
        elif suspects:
            in_doubt.update(dict.fromkeys(suspects))
        else:
            again.update({case.ends: (case.names[0], case.names[1]) for case in cases})
    return [node for node in in_doubt if node not in named], list(again.values())


Names = Sequence[str]


class _Pairing:
    def __init__(self, nodes: Sequence[str], partners: dict[str, set[str]], number: int) -> None:
        self.order = {node: place for place, node in enumerate(nodes)}
        self.nodes, self.partners, self.number = nodes, partners, number
        self.pairs: list[Pair] = []

    def made(
        self, in_doubt: Names, helpers: Names, *, slow: Iterable[str], again: Sequence[Pair] = (), block: int = 0
    ) -> list[Pair]:
        free = dict.fromkeys(node for node in self.nodes if node not in set(slow))
        for a, b in again:
            if a in free and b in free:
                self._pair(a, b, free)
        left = dict.fromkeys(in_doubt)
        good = [node for node in helpers if node not in left]
        for node in left:
            if node in free:
                partner = self._new_partner(node, good, free) or self._new_partner(node, list(free), free)
                if partner is not None:
                    self._pair(node, partner, free)
        self._across(list(free), block)
        self._swap_old_partners(set(map(frozenset, again)))
        return sorted(self.pairs, key=lambda pair: self.order[pair[0]])

    def _pair(self, a: str, b: str, free: dict[str, None]) -> None:
        self.pairs.append(self._sorted(a, b))
        free.pop(a)
        free.pop(b)

    def _new_partner(self, node: str, candidates: Sequence[str], free: dict[str, None]) -> str | None:
        new = (other for other in candidates if other in free and other != node)
        return next((other for other in new if other not in self.partners[node]), None)

    def _across(self, nodes: list[str], block: int) -> None:
        """Pair the others: each with the node half a list away; in later rounds a quarter, an eighth. block: with the
        node at the same place of the neighbouring block of so many nodes."""
        if block:
            facing = {self.order[node] ^ block: node for node in nodes}
            for node in nodes:
                partner = facing.get(self.order[node])
                if partner is not None and self.order[node] < self.order[partner]:
                    self.pairs.append((node, partner))
            used = {node for pair in self.pairs for node in pair}
            nodes = [node for node in nodes if node not in used]
        half = len(nodes) // 2
        turn = half >> (self.number - 1) if self.number > 1 else 0
        for place in range(half):
            self.pairs.append((nodes[place], nodes[half + (place + turn) % half]))

    def _swap_old_partners(self, again: set[frozenset[str]]) -> None:
        """Exchange partners of pairs that were measured before, where possible: a second time shows nothing new."""
        for number, (a, b) in enumerate(self.pairs):
            if b not in self.partners[a] or frozenset((a, b)) in again:
                continue
            others = [(place, pair) for place, pair in enumerate(self.pairs) if place != number]
            others = [(place, pair) for place, pair in others if frozenset(pair) not in again]
            for second, (c, d) in ((place, way) for place, pair in others for way in (pair, pair[::-1])):
                if c not in self.partners[a] and d not in self.partners[b]:
                    self.pairs[number], self.pairs[second] = self._sorted(a, c), self._sorted(b, d)
                    break

    def _sorted(self, a: str, b: str) -> Pair:
        return (a, b) if self.order[a] < self.order[b] else (b, a)
