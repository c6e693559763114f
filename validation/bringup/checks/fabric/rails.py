"""RDMA ports one by one: what each reached with itself, and with the ports of its name on the nodes next to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from bringup.evidence.parsed import Parsed, Seen, is_number
from bringup.plan import rounds
from bringup.records import Observation, Run

Rates = dict[tuple[str, str], float]  # (node, rail) -> Gb/s


@dataclass(frozen=True)
class Transfer:
    """Of one rail in one direction. share: of the rate of the slower side; None: not found out, and why."""

    rail: str
    source: str
    target: str
    share: float | None
    says: str
    evidence: str


def derive(seen: Seen, run: Run) -> Parsed:
    found = Parsed()
    if run.phase == "node_sweep":
        _loopback(found, seen)
    if run.phase == "nccl_pairwise":
        _between_nodes(found, seen, run.nodes)
    return found


def _rates(seen: Seen, prefix: str) -> Rates:
    return {
        (fact.subject, quantity.partition("@")[2]): float(fact.value)
        for quantity, facts in seen.starting_with(f"{prefix}.rate@").items()
        for fact in facts
        if is_number(fact.value)
    }


def _tests(seen: Seen, prefix: str, rates: Rates) -> list[Transfer]:
    tests = []
    for quantity, facts in seen.starting_with(f"{prefix}.bandwidth@").items():
        rail = quantity.partition("@")[2]
        for fact in facts:
            source, _, target = fact.subject.partition("->")
            target = target or source
            known = [rates[node, rail] for node in (source, target) if (node, rail) in rates]
            rate = min(known, default=0.0)
            share = float(fact.value) / rate if is_number(fact.value) and rate > 0 else None
            measured = f"{fact.value:g} of {rate:g} Gb/s" if share is not None else "not found out"
            why = f" ({fact.why})" if fact.why else ""
            where = rail if source == target else f"{rail} {source}->{target}"
            tests.append(Transfer(rail, source, target, share, f"{where}: {measured}{why}", fact.evidence))
    return tests


def _say(found: Parsed, gate: str, subject: str, tests: Iterable[Transfer]) -> None:
    """The slowest of them; besides, that one is unknown."""
    tests = list(tests)
    known = [test for test in tests if test.share is not None]
    unknown = next((test for test in tests if test.share is None), None)
    if known:
        worst = min(known, key=lambda test: test.share or 0.0)
        found.saw(gate, subject, round(worst.share or 0.0, 3), "share", worst.evidence, worst.says)
    if unknown is not None:
        found.saw(gate, subject, None, "share", unknown.evidence, unknown.says)


def _loopback(found: Parsed, seen: Seen) -> None:
    tests = defaultdict(list)
    for test in _tests(seen, "loopback", _rates(seen, "loopback")):
        tests[test.source].append(test)
    for ports in seen.of("loopback.ports"):
        if tests[ports.subject]:
            _say(found, "fabric.loopback", ports.subject, tests[ports.subject])
        else:
            found.saw("fabric.loopback", ports.subject, None, "share", ports.evidence, "no RDMA port is active")


def _between_nodes(found: Parsed, seen: Seen, nodes: list[str]) -> None:
    rates = _rates(seen, "rail")
    tests = _tests(seen, "rail", rates) + _not_measured(seen, nodes, rates)
    _say(found, "fabric.rail.slowest", "job", tests)
    for node in nodes:
        _say(found, "fabric.rail.nic", node, _best_of_each_rail(node, tests))
    _latency(found, seen)


def _not_measured(seen: Seen, nodes: list[str], rates: Rates) -> list[Transfer]:
    """Links that did not answer or were not exercised, and ports that the other end of their link has not got."""
    met = {fact.subject: fact for fact in seen.of("rail.met")}
    ports = {fact.subject: fact for fact in seen.of("rail.ports")}
    rails = sorted({rail for _, rail in rates})
    missing = []
    for first, second in rounds.ring(nodes):
        link = f"{first}--{second}"
        fact = met.get(link) or met.get(f"{second}--{first}")
        if fact is None or fact.value is not True:
            why, where = (fact.why or "no answer", fact.evidence) if fact is not None else ("not exercised", "raw/")
            missing.append(Transfer("", first, second, None, f"{link}: {why}", where))
            continue
        for node, other in ((first, second), (second, first)):
            lacking = [rail for rail in rails if (node, rail) not in rates]
            if lacking or not rails:
                why = (
                    f"{node} has no active port {', '.join(lacking)}" if lacking else f"{node} has no active RDMA port"
                )
                where = ports[node].evidence if node in ports else "raw/"
                missing.append(Transfer(lacking[0] if lacking else "", node, other, None, why, where))
    return missing


def _best_of_each_rail(node: str, tests: list[Transfer]) -> list[Transfer]:
    """Of each rail of the node the slower direction with the better partner; what is unknown of a rail only where no
    partner is known."""
    by_rail: dict[str, dict[str, list[Transfer]]] = defaultdict(lambda: defaultdict(list))
    for test in tests:
        if node in (test.source, test.target):
            partner = test.target if node == test.source else test.source
            by_rail[test.rail][partner].append(test)
    best = []
    for partners in by_rail.values():
        known = [
            min(both, key=lambda test: test.share or 0.0)
            for both in partners.values()
            if all(test.share is not None for test in both)
        ]
        if known:
            best.append(max(known, key=lambda test: test.share or 0.0))
        else:
            best.append(next(test for both in partners.values() for test in both if test.share is None))
    return best


def _latency(found: Parsed, seen: Seen) -> None:
    told: list[tuple[str, Observation]] = [
        (quantity.partition("@")[2], fact)
        for quantity, facts in seen.starting_with("rail.latency@").items()
        for fact in facts
    ]
    known = [(rail, fact) for rail, fact in told if is_number(fact.value)]
    unknown = next(((rail, fact) for rail, fact in told if not is_number(fact.value)), None)
    if known:
        rail, fact = max(known, key=lambda one: float(one[1].value) if is_number(one[1].value) else 0.0)
        found.saw("fabric.rail.latency", "job", fact.value, "us", fact.evidence, f"{rail} {fact.subject}")
    if unknown is not None:
        rail, fact = unknown
        found.saw("fabric.rail.latency", "job", None, "us", fact.evidence, f"{rail} {fact.subject}: {fact.why}")
    elif not told:
        found.saw("fabric.rail.latency", "job", None, "us", "raw/", "no rail was measured")
