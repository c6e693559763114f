"""Single RDMA ports: the speed of each in loopback, and with the same-named ports of its neighbour nodes."""

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

from bringup.kernel.facts.parser_result import Parsed, Seen, is_number
from bringup.kernel.plan import rounds
from bringup.kernel.records import Run, grouped

Rates = dict[tuple[str, str], float]  # (node, rail) -> Gb/s


class Transfer(NamedTuple):
    """One transfer over a rail. share: of the slower side's rate; None: unknown, with the reason."""

    rail: str
    source: str
    target: str
    share: float | None
    says: str
    evidence: str


def _rates(observed: Seen, prefix: str) -> Rates:
    rates = ((fact, fact.quantity.partition("@")[2]) for fact in observed.under(f"{prefix}.rate@"))
    return {(fact.subject, rail): float(fact.value) for fact, rail in rates if is_number(fact.value)}


def _tests(observed: Seen, prefix: str, rates: Rates) -> list[Transfer]:
    tests = []
    for fact in observed.under(f"{prefix}.bandwidth@"):
        rail = fact.quantity.partition("@")[2]
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


def _worst_of(derived: Parsed, gate: str, subject: str, tests: Iterable[Transfer]) -> None:
    """Return the slowest transfer. If one is unknown, the result is unknown, too."""
    tests = list(tests)
    known = [test for test in tests if test.share is not None]
    unknown = next((test for test in tests if test.share is None), None)
    if known:
        worst = min(known, key=_share)
        derived.saw(gate, subject, round(_share(worst), 3), "share", worst.evidence, worst.says)
    if unknown is not None:
        derived.saw(gate, subject, None, "share", unknown.evidence, unknown.says)


def loopback(derived: Parsed, observed: Seen, run: Run) -> None:
    rates = _rates(observed, "loopback")
    tests = grouped((test.source, test) for test in _tests(observed, "loopback", rates))
    for node, port in sorted(rates):
        if all(test.rail != port for test in tests.get(node, [])):
            why = f"{port}: no transfer to itself arrived"
            tests.setdefault(node, []).append(Transfer(port, node, node, None, why, "raw/"))
    for ports in observed.of("loopback.ports"):
        if ports.subject in tests:
            _worst_of(derived, "fabric.loopback", ports.subject, tests[ports.subject])
        else:
            derived.saw("fabric.loopback", ports.subject, None, "share", ports.evidence, "no RDMA port is active")


def between_nodes(derived: Parsed, observed: Seen, run: Run) -> None:
    rates = _rates(observed, "rail")
    tests = _tests(observed, "rail", rates)
    tests += _not_measured(observed, run.nodes, rates, tests)
    _worst_of(derived, "fabric.rail.slowest", "job", tests)
    for node in run.nodes:
        _worst_of(derived, "fabric.rail.nic", node, _best_of_each_rail(node, tests))


def _not_measured(observed: Seen, nodes: list[str], rates: Rates, tests: list[Transfer]) -> list[Transfer]:
    """Links without an answer or not exercised, ports that the other node does not have, and rails without a
    transfer."""
    measured = {(test.rail, test.source, test.target) for test in tests}
    met = {fact.subject: fact for fact in observed.of("rail.met")}
    ports = {fact.subject: fact for fact in observed.of("rail.ports")}
    rails = sorted({rail for _, rail in rates})
    missing = []
    for first, second in rounds.ring(nodes):
        link = f"{first}--{second}"
        fact = met.get(link) or met.get(f"{second}--{first}")
        if fact is None or fact.value is not True:
            why, where = (fact.why or "no answer", fact.evidence) if fact is not None else ("not exercised", "raw/")
            missing.append(Transfer("", first, second, None, f"{link}: {why}", where))
            continue
        for source, target in ((first, second), (second, first)):
            for rail in rails:
                if {(source, rail), (target, rail)} <= rates.keys() and (rail, source, target) not in measured:
                    why = f"{rail} {source}->{target}: no transfer arrived"
                    missing.append(Transfer(rail, source, target, None, why, fact.evidence))
        for node, peer in ((first, second), (second, first)):
            lacking = [rail for rail in rails if (node, rail) not in rates]
            if lacking or not rails:
                why = f"{node} has no active {'port ' + ', '.join(lacking) if lacking else 'RDMA port'}"
                where = ports[node].evidence if node in ports else "raw/"
                missing.append(Transfer(lacking[0] if lacking else "", node, peer, None, why, where))
    return missing


def _best_of_each_rail(node: str, tests: list[Transfer]) -> list[Transfer]:
    """For each rail of the node, the slower direction with the better partner. A rail is unknown only if it is unknown
    with every partner."""
    by_rail: dict[str, dict[str, list[Transfer]]] = defaultdict(lambda: defaultdict(list))
    for test in tests:
        if node in (test.source, test.target):
            partner = test.target if node == test.source else test.source
            by_rail[test.rail][partner].append(test)
    best = []
    for partners in by_rail.values():
        known = [min(ways, key=_share) for ways in partners.values() if all(way.share is not None for way in ways)]
        unknown = (way for ways in partners.values() for way in ways if way.share is None)
        best.append(max(known, key=_share) if known else next(unknown))
    return best


def _share(test: Transfer) -> float:
    return test.share or 0.0
