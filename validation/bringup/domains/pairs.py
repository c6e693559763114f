"""Measurements of single pairs of nodes -> scores of nodes and links, which show the slow ones. Pure, and without a
threshold.

A node's score is that of its middle partner, so one bad link does not blame the node. A link is compared with what its
two nodes reach elsewhere, so a bad node does not blame all of its links. Every pair is measured several times. Its
speed is the best measurement, because another process can only slow it down. A link that is slow at times shows in its
worst measurement.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, islice
from statistics import median, median_high, median_low

from bringup.domains import localise
from bringup.domains.pair_kinds import Kinds, Places, places, reference
from bringup.kernel.characters import many
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.plan.expectation import size_bytes
from bringup.kernel.plan.rounds import ALL_PAIRS, ROUND, Pair, link_name
from bringup.kernel.plan.subjects import JOB
from bringup.kernel.records import Observation, grouped
from bringup.readers.slurm import LEAF, LEAVES

BANDWIDTH, LATENCY = "pair.bandwidth", "pair.latency_p95"
SUSPECT_RATIO = 0.5  # only decides what is measured again, and its wording; the gates use the profile's numbers
SUSPECT_LATENCY_FACTOR = 10
LISTED = 12  # pairs that were not exercised, by name
_FILES = "raw/pairs-*.jsonl"
LEAST_PARTNERS = 2  # with one partner, a slow node looks like a slow link

_COLLECTIVE = re.compile(r"nccl\.all_reduce\.(?P<what>busbw|time)@(?P<size>\w+)")


def from_collectives(observations: Iterable[Observation]) -> list[Observation]:
    """Read pairs on GPUs, which run all_reduce (subject n0--n1). The largest size gives the bandwidth, one number for
    both directions; the time of the smallest size gives the latency. Each measurement of a pair is a step."""
    grouped: dict[tuple[str, str, str], list[tuple[int, Observation]]] = defaultdict(list)
    for observation in observations:
        match = _COLLECTIVE.fullmatch(observation.quantity)
        size = size_bytes(match["size"]) if match else None
        if match and size is not None and "--" in observation.subject:
            grouped[observation.subject, match["what"], observation.step].append((size, observation))
    result = []
    for (link, quantity, _), sized in grouped.items():
        first, _, second = link.partition("--")
        chosen = (max if quantity == "busbw" else min)(sized, key=lambda item: item[0])[1]
        both_ways = f"{first}->{second}", f"{second}->{first}"
        name, subjects = (BANDWIDTH, both_ways) if quantity == "busbw" else (LATENCY, (link,))
        result += [chosen.model_copy(update={"quantity": name, "subject": subject}) for subject in subjects]
    return result


@dataclass
class Measured:
    best: float
    evidence: str
    all: list[float]

    @property
    def steady(self) -> float | None:
        """Return the worst as a share of the best; None if it was measured once. 1 if every measurement was 0."""
        if len(self.all) < 2:
            return None
        return min(self.all) / max(self.all) if max(self.all) > 0 else 1.0

    @property
    def listed(self) -> str:
        return ", ".join(f"{value:.3g}" for value in self.all)


Directions = Mapping[Pair, Measured]  # (from, to) -> GB/s
Links = Mapping[Pair, Measured]  # (first, second) -> us


def measured(observations: Iterable[Observation]) -> tuple[Directions, Links]:
    directions: dict[Pair, Measured] = {}
    links: dict[Pair, Measured] = {}
    observed = [seen for seen in observations if seen.quantity.startswith(("pair.", "nccl.all_reduce."))]
    for observation in [*observed, *from_collectives(observed)]:
        if not isinstance(observation.value, int | float) or observation.quantity not in (BANDWIDTH, LATENCY):
            continue
        first, _, second = observation.subject.partition("->" if observation.quantity == BANDWIDTH else "--")
        table, better = (directions, max) if observation.quantity == BANDWIDTH else (links, min)
        known = table.get((first, second))
        value = float(observation.value)
        if known is None:
            table[first, second] = Measured(value, observation.evidence, [value])
        else:
            known.all.append(value)
            if value == better(value, known.best) != known.best:
                known.best, known.evidence = value, observation.evidence
    return directions, links


def measured_rounds(observations: Iterable[Observation]) -> list[dict[Pair, float]]:
    """Return rounds in order: (from, to) -> GB/s, the best of the repeats. A planned pair without a result has 0."""
    observed = list(observations)
    rounds: dict[int, dict[Pair, float]] = {}
    for planned in observed:
        if planned.quantity == ROUND and isinstance(planned.value, int):
            first, _, second = planned.subject.partition("--")
            rounds.setdefault(planned.value, {}).update({(first, second): 0.0, (second, first): 0.0})
    for speed in [*observed, *from_collectives(observed)]:
        if speed.quantity != BANDWIDTH or speed.round is None or not isinstance(speed.value, int | float):
            continue  # without a round: pairs that were measured again
        source, _, target = speed.subject.partition("->")
        known = rounds.get(speed.round, {})
        if (source, target) in known:
            known[source, target] = max(known[source, target], float(speed.value))
    return [rounds[number] for number in sorted(rounds)]


def are_directed(observations: Iterable[Observation]) -> bool:
    """Say whether each direction was measured by itself. False: a collective goes both ways at once, with one speed."""
    return any(seen.quantity == BANDWIDTH for seen in observations)


def way_in_words(pair: Pair, is_directed: bool) -> str:
    return f"{pair[0]}->{pair[1]}" if is_directed else " and ".join(sorted(pair))


def kinds(directions: Directions, places: Places, distance: localise.Distance | None = None) -> Kinds:
    return Kinds({pair: speed.best for pair, speed in directions.items()}, places, distance)


@dataclass(frozen=True)
class NodeScore:
    """Speeds of a node with its middle partner, as shares of the reference."""

    out: float
    into: float
    partners: int
    unconfirmed: str = ""  # the only direction that was slow, when it was measured once; the others gave no answer

    @property
    def worst(self) -> float:
        return min(self.out, self.into)


def node_scores(directions: Directions, kinds: Kinds) -> dict[str, NodeScore]:
    """Score nodes with enough partners."""
    usual = {pair: kinds.usual(pair) for pair in directions}
    shares = [(speed.best / usual[pair] if usual[pair] > 0 else 0.0, pair) for pair, speed in directions.items()]
    out, into = (grouped((share[1][end], share) for share in shares) for end in (0, 1))
    scores = {}
    for node in sorted(out.keys() & into.keys()):
        partners = min(len(out[node]), len(into[node]))
        if partners >= LEAST_PARTNERS:
            middle = kinds.middle(out[node]), kinds.middle(into[node])
            way = min((out[node], into[node]), key=kinds.middle)
            slow = [pair for share, pair in way if 0 < share < SUSPECT_RATIO]  # they answered
            once = 0 < min(middle)[0] < SUSPECT_RATIO and sum(len(directions[pair].all) for pair in slow) == 1
            unconfirmed = f"{slow[0][0]}->{slow[0][1]}" if once else ""
            scores[node] = NodeScore(middle[0][0], middle[1][0], partners, unconfirmed)
    return scores


def link_scores(directions: Directions, names: Sequence[str], kinds: Kinds) -> dict[Pair, dict[Pair, float]]:
    """Score links (nodes in the order of `names`) -> direction -> share of the speed expected of its two nodes."""
    nodes = node_scores(directions, kinds)
    order = {node: index for index, node in enumerate(names)}
    scores: dict[Pair, dict[Pair, float]] = defaultdict(dict)
    for (source, target), speed in directions.items():
        sends = min(1.0, nodes[source].out) if source in nodes else 1.0
        gets = min(1.0, nodes[target].into) if target in nodes else 1.0
        normal = kinds.usual((source, target))
        expected = normal * min(sends, gets)
        link = (source, target) if order.get(source, 0) < order.get(target, 0) else (target, source)
        # two nodes without any network both score 0: their link cannot be blamed beyond that
        scores[link][source, target] = speed.best / expected if expected > 0 else (1.0 if normal > 0 else 0.0)
    return scores


def middle_partners(measured: Iterable[tuple[str, float]]) -> dict[str, tuple[float, int]]:
    """Return node -> the median over its partners (of two the lower one), and their number; of nodes with enough."""
    known = {node: values for node, values in sorted(grouped(measured).items()) if len(values) >= LEAST_PARTNERS}
    return {node: (median_low(values), len(values)) for node, values in known.items()}


def derive(observations: Sequence[Observation], names: Sequence[str], places: Places | None = None) -> Parsed:
    """Score nodes and links as observations; note pairs without a measurement."""
    observed = list(observations)
    directions, links = measured(observed)
    is_directed = are_directed(observed)
    scores = Parsed()
    distance = _localised(scores, observed, names)
    if directions:
        scores.problems[:0] = _not_exercised(directions, names)
    of = kinds(directions, places or {}, distance)
    for node, score in node_scores(directions, of).items():
        worst = None if score.unconfirmed else round(score.worst, 4)
        scores.saw("nccl.pair.node", node, worst, "ratio", _FILES, _node_words(score, is_directed))
    by_link = link_scores(directions, names, of)
    for link, shares in by_link.items():
        _link(scores, link_name(link), shares, directions, is_directed)
    near = of.near()
    for gate, several in (("", near), (".between", [pair for pair in directions if pair not in set(near)])):
        if several:
            pair = min(several, key=lambda pair: directions[pair].best)
            words = f"the faster half has {reference(directions[pair].best for pair in several):.3g} GB/s"
            words = "no other pair to compare with" if len(by_link) == 1 else words
            speed, words = directions[pair], f"{way_in_words(pair, is_directed)}; {words}"
            scores.saw(f"nccl.pair.slowest{gate}", JOB, speed.best, "GB/s", speed.evidence, words)
    nodes = middle_partners((node, trips.best) for pair, trips in links.items() for node in pair)
    for node, (latency_us, partners) in nodes.items():
        words = f"the middle one of {partners} partners"
        scores.saw("nccl.pair.node.latency", node, latency_us, "us", _FILES, words)
    for ends, trips in links.items():
        explained = max((nodes[node][0] for node in ends if node in nodes), default=0.0)
        words = f"{trips.best:.0f} us, of which {explained:.0f} us are usual for its nodes"
        excess = round(max(0.0, trips.best - explained), 1)
        scores.saw("nccl.pair.link.latency", link_name(ends), excess, "us", trips.evidence, words)
    return scores


def _link(scores: Parsed, link: str, shares: Mapping[Pair, float], speeds: Directions, is_directed: bool) -> None:
    """nccl.pair.link: the slower direction. nccl.pair.link.steady: the worst measurement as a share of the best, in the
    less steady direction."""
    pair = min(shares, key=lambda pair: shares[pair])
    speed = speeds[pair]
    if len(shares) < 2:
        why = f"{pair[1]}->{pair[0]} was not measured, only {pair[0]}->{pair[1]}"
        scores.saw("nccl.pair.link", link, None, "ratio", speed.evidence, why)
        return
    words = f"{way_in_words(pair, is_directed)} at {speed.best:.3g} GB/s" + (" (no answer)" if speed.best == 0 else "")
    if len(speed.all) > 1:
        words += f", the best of {len(speed.all)}: {speed.listed}"
    scores.saw("nccl.pair.link", link, round(shares[pair], 4), "ratio", speed.evidence, words)
    steady = {way: share for way in shares if (share := speeds[way].steady) is not None}
    if len(steady) < 2:
        why = "measured once: a link that is slow at times looks like a good one"
        scores.saw("nccl.pair.link.steady", link, None, "ratio", speeds[next(iter(shares))].evidence, why)
        return
    pair = min(steady, key=lambda pair: steady[pair])
    words = f"{way_in_words(pair, is_directed)} at {speeds[pair].listed} GB/s, one after the other"
    scores.saw("nccl.pair.link.steady", link, round(steady[pair], 4), "ratio", speeds[pair].evidence, words)


def _localised(scores: Parsed, observations: Sequence[Observation], names: Sequence[str]) -> localise.Distance | None:
    """Note slow nodes and links by the spread of this run, and return how far near pairs reach. Up to 8 nodes the gates
    do that. The profile's floors are always judged."""
    rounds = measured_rounds(observations) if len(names) > ALL_PAIRS else []
    if not any(rounds):
        return None
    culprits = localise.culprits(names, rounds)
    phrases = localise.words(culprits, names)
    scores.problems.append(f"pairs, after {many(len(rounds), 'round')}: {'; '.join(phrases)}")
    return culprits.distance


def _not_exercised(directions: Directions, names: Sequence[str]) -> list[str]:
    """Note, without a verdict, nodes without a partner, and the first pairs that were not measured."""
    exercised = {frozenset(pair) for pair in directions if set(pair) <= set(names)}
    possible = len(names) * (len(names) - 1) // 2
    if len(exercised) == possible:
        return []
    others = (link_name(pair) for pair in combinations(names, 2) if frozenset(pair) not in exercised)
    listed = list(islice(others, LISTED))
    more = possible - len(exercised) - len(listed)
    alone = sorted(set(names) - {node for pair in exercised for node in pair})
    words = f"{len(exercised)} of {possible} pairs of nodes were exercised; not: {', '.join(listed)}"
    words += f" and {more} more" if more else ""
    return [words + (f"; without any partner: {', '.join(alone[:LISTED])}" if alone else "")]


def _node_words(score: NodeScore, is_directed: bool) -> str:
    slower = "sends slowly: " if score.out < score.into / 2 else ""
    slower = "receives slowly: " if score.into < score.out / 2 else slower
    both = f"{slower}sends at {100 * score.out:.0f} % and receives at {100 * score.into:.0f} %"
    does = both if is_directed else f"collectives with it reach {100 * score.worst:.0f} %"
    words = f"{does} of the usual rate, median of {score.partners} partners"
    if score.unconfirmed:
        words += f"; of those that answered only {score.unconfirmed} was slow, and it was measured once"
    return words + ("; two bad links would look the same" if score.partners == LEAST_PARTNERS else "")


def suspects(observations: Iterable[Observation]) -> list[Pair]:
    """Find pairs to measure again: slow and unsteady links, and slow nodes with a good new partner."""
    observations = list(observations)
    directions, links = measured(observations)
    of = kinds(directions, places(observations))
    nodes = node_scores(directions, of)
    slow = {node for node, score in nodes.items() if score.worst < SUSPECT_RATIO}
    usual_us = median([trips.best for trips in links.values()]) if links else 0.0
    paired = {*directions, *((second, first) for first, second in directions)}
    chosen: list[Pair] = []
    for (first, second), trips in links.items():
        both_ways = [directions[pair] for pair in ((first, second), (second, first)) if pair in directions]
        unsteady = any(way.steady is not None and way.steady < SUSPECT_RATIO for way in both_ways)
        usual = of.usual((first, second)) if (first, second) in directions else 0.0
        slow_link = min((way.best for way in both_ways), default=0.0) < SUSPECT_RATIO * usual
        if slow_link or unsteady or trips.best > SUSPECT_LATENCY_FACTOR * usual_us:
            chosen.append((first, second))
    for first, second in directions:  # no latency was measured: no answer
        if {(first, second), (second, first)}.isdisjoint(links) and (second, first) not in chosen:
            chosen.append((first, second))
    for node in sorted(slow):
        good = next((partner for partner in nodes if partner not in slow and (node, partner) not in paired), None)
        if good is not None:
            chosen.append((node, good))
    return chosen


SENT_AGAIN = "pair.sent_again"


def sent_again(observations: Iterable[Observation]) -> Parsed:
    """Derive nccl.pair.node.lost: shares of TCP segments. Nothing where none are counted.

    A large transfer recovers from a loss at once, so neither its speed nor 95 of 100 round trips show one packet in
    fifty. As with speeds, a node is judged by its middle partner: one bad link does not blame it."""
    directions: dict[Pair, float] = {}  # (from, to) -> the least share of the repeats
    for observation in observations:
        if isinstance(observation.value, int | float):
            source, _, target = observation.subject.partition("->")
            directions[source, target] = min(float(observation.value), directions.get((source, target), 1.0))
    ends = (middle_partners((pair[end], share) for pair, share in directions.items()) for end in (0, 1))
    out, into = ({node: share for node, (share, _) in of_end.items()} for of_end in ends)
    lost = Parsed()
    for node in sorted(out.keys() & into.keys()):
        words = f"of what it sends {out[node]:.2%}, of what its partners send to it {into[node]:.2%} is sent again"
        lost.saw("nccl.pair.node.lost", node, round(max(out[node], into[node]), 5), "ratio", _FILES, words)
    return lost


def topology(observed: Seen) -> Parsed:
    """Derive nccl.pair.topology, ratio: what the worst node reaches with those under its own leaf switch (or in its
    block), over what it reaches under the switch where it is fastest. Of each switch the middle partner counts, of two
    the better one. Not known where the measured pairs are all under one switch, or none is."""
    parsed, answers = Parsed(), observed.of(LEAVES)
    directions, _ = measured(observed.under("pair.", "nccl."))
    if not answers or not directions:
        return parsed
    leaf = {node: node for pair in directions for node in pair}
    leaf |= {seen.subject: str(seen.value) for seen in observed.of(LEAF)}
    inside = [speed.best for (a, b), speed in directions.items() if leaf[a] == leaf[b]]
    across = [speed.best for (a, b), speed in directions.items() if leaf[a] != leaf[b]]
    gate, evidence = "nccl.pair.topology", answers[0].evidence
    if not inside or not across:
        why = f"of the measured pairs {len(inside)} are under one switch and {len(across)} are not"
        return parsed.saw(gate, JOB, None, "ratio", evidence, f"{why}; BRINGUP_PAIR_ROUNDS=all measures every pair")
    also = f"the middle of all pairs under one switch: {median(inside):.3g}, of the others: {median(across):.3g}"
    speeds: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (a, b), way in directions.items():
        speed = min(way.best, directions.get((b, a), way).best)
        speeds[a][leaf[b]].append(speed)
        speeds[b][leaf[a]].append(speed)
    shares = []
    for node, by_leaf in sorted(speeds.items()):
        middle = {name: median_high(values) for name, values in by_leaf.items()}
        own, best = leaf[node], max(middle, key=lambda name: middle[name])
        if own in middle and middle[best] > 0:
            share = middle[own] / middle[best]
            words = f"{node} with those under {own}: {middle[own]:.3g} GB/s, under {best}: {middle[best]:.3g} GB/s"
            shares.append((share, words))
    if not shares:  # no pair carried a byte: there is nothing to compare
        return parsed
    share, words = min(shares)
    return parsed.saw(gate, JOB, round(share, 4), "ratio", evidence, f"{words}; {also}")
