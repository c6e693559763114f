"""Chooses the pairs of the next round from the results so far. Pure and deterministic.

Round 1: neighbours in the list of nodes. Round 2: nodes of slow pairs meet nodes of the fastest pairs; all others meet
the node half a list away, to use every uplink of every block. Further rounds are measured only while something is open:
a node that rested and has one partner only, a slow direction with several explanations, or a distance beyond which
pairs are slower. All nodes that are not known to be slow take part in every round, because a less busy network would
look faster.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from bringup.derive.localise import Culprit, among, culprits
from bringup.derive.pair_noise import Round, measurements
from bringup.plan.rounds import Pair, neighbours

SUSPECT = 1.5  # noises below the others: after one round, the members of such a pair meet those of the fastest


def most_rounds(nodes: Sequence[str]) -> int:
    """The most rounds: two for a node, and log2 N more for open questions."""
    return 2 + math.ceil(math.log2(max(2, len(nodes))))


def next_round(nodes: Sequence[str], played: Sequence[Round]) -> list[Pair]:
    """The pairs of the next round; empty if nothing is open or the most rounds were measured."""
    if not played:
        return neighbours(nodes)
    played = among(nodes, played)
    partners: dict[str, set[str]] = defaultdict(set)
    for met in played:
        for a, b in met:
            partners[a].add(b)
            partners[b].add(a)
    if len(played) >= most_rounds(nodes) or len(nodes) < 3:
        return []
    if len(played) == 1:
        return _Pairing(nodes, partners, len(played)).made(*_second(nodes, played[0], partners), slow=())
    known = culprits(nodes, played)
    named = {name for culprit in known.nodes for name in culprit.names}
    lonely = [node for node in nodes if len(partners[node]) < min(2, len(nodes) - 1) and node not in named]
    searched = known.distance is not None and not known.distance.is_found
    if not lonely and not known.undecided and not searched:
        return []
    needy, again = _wanted(known.undecided, named)
    helpers = [node for node in nodes if node not in named and node not in needy]
    block = 0
    if known.distance is not None and searched:
        low, high = known.distance.fast_up_to.bit_length() - 1, known.distance.slow_from.bit_length() - 1
        block = 2 ** ((low + high) // 2)
    return _Pairing(nodes, partners, len(played)).made([*lonely, *needy], helpers, again=again, slow=named, block=block)


def _second(nodes: Sequence[str], first: Round, partners: dict[str, set[str]]) -> tuple[list[str], list[str]]:
    """(nodes that must meet a good node, good nodes), the slowest and the fastest pair first."""
    z = measurements([first]).z
    worst: dict[frozenset[str], float] = {}
    for pair, value in z.items():
        worst[frozenset(pair)] = min(value, worst.get(frozenset(pair), math.inf))
    order = {node: number for number, node in enumerate(nodes)}
    ranked = sorted(worst, key=lambda pair: (worst[pair], min(order[node] for node in pair)))
    in_order = [sorted(pair, key=lambda node: order[node]) for pair in ranked]
    slow = [pair for pair in in_order if worst[frozenset(pair)] < -SUSPECT]
    fast = [pair for pair in reversed(in_order) if worst[frozenset(pair)] >= -SUSPECT]
    rested = [node for node in nodes if not partners[node]]
    return [*rested, *(node for pair in slow for node in pair)], [node for pair in fast for node in pair]


def _wanted(undecided: Iterable[Sequence[Culprit]], named: set[str]) -> tuple[list[str], list[Pair]]:
    """Nodes that must meet another good node, and pairs that must be measured again."""
    needy: dict[str, None] = {}
    again: dict[frozenset[str], Pair] = {}
    for cases in undecided:
        blocks = [case for case in cases if case.kind == "block"]
        suspects = [case.names[0] for case in cases if case.kind == "node"]
        if blocks:
            needy.update(dict.fromkeys(blocks[0].names))
        elif suspects:
            needy.update(dict.fromkeys(suspects))
        else:
            again.update({case.ends: (case.names[0], case.names[1]) for case in cases})
    return [node for node in needy if node not in named], list(again.values())


class _Pairing:
    def __init__(self, nodes: Sequence[str], partners: dict[str, set[str]], number: int) -> None:
        self.order = {node: place for place, node in enumerate(nodes)}
        self.nodes, self.partners, self.number = nodes, partners, number
        self.pairs: list[Pair] = []

    def made(
        self,
        needy: Sequence[str],
        helpers: Sequence[str],
        *,
        slow: Iterable[str],
        again: Sequence[Pair] = (),
        block: int = 0,
    ) -> list[Pair]:
        free = dict.fromkeys(node for node in self.nodes if node not in set(slow))
        for a, b in again:
            if a in free and b in free:
                self._meet(a, b, free)
        left = dict.fromkeys(needy)
        good = [node for node in helpers if node not in left]
        for node in left:
            if node in free:
                partner = self._stranger(node, good, free) or self._stranger(node, list(free), free)
                if partner is not None:
                    self._meet(node, partner, free)
        self._across(list(free), block)
        self._swap_old_acquaintances(set(map(frozenset, again)))
        return sorted(self.pairs, key=lambda pair: self.order[pair[0]])

    def _meet(self, a: str, b: str, free: dict[str, None]) -> None:
        self.pairs.append((a, b) if self.order[a] < self.order[b] else (b, a))
        free.pop(a)
        free.pop(b)

    def _stranger(self, node: str, candidates: Sequence[str], free: dict[str, None]) -> str | None:
        return next(
            (
                candidate
                for candidate in candidates
                if candidate in free and candidate != node and candidate not in self.partners[node]
            ),
            None,
        )

    def _across(self, nodes: list[str], block: int) -> None:
        """The others: each with the node half a list away; in later rounds a quarter, an eighth. block: with the node
        at the same place of the neighbouring block of so many nodes."""
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

    def _swap_old_acquaintances(self, again: set[frozenset[str]]) -> None:
        """Exchange partners of pairs that have met before, where possible: measuring them again shows nothing new."""
        for number, (a, b) in enumerate(self.pairs):
            if b not in self.partners[a] or frozenset((a, b)) in again:
                continue
            for second, (c, d) in enumerate(self.pairs):
                if second == number or frozenset((c, d)) in again:
                    continue
                if c not in self.partners[a] and d not in self.partners[b]:
                    self.pairs[number], self.pairs[second] = self._sorted(a, c), self._sorted(b, d)
                    break
                if d not in self.partners[a] and c not in self.partners[b]:
                    self.pairs[number], self.pairs[second] = self._sorted(a, d), self._sorted(b, c)
                    break

    def _sorted(self, a: str, b: str) -> Pair:
        return (a, b) if self.order[a] < self.order[b] else (b, a)
