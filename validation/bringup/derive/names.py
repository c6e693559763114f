"""The addresses that node names resolve to, compared over the fleet.

One node resolves all names: the table. Every other node reports the names that it resolves differently. So the number
of facts is the number of nodes, not of pairs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from bringup.evidence.names import first_few
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Observation, Run

NOWHERE = "none"  # as probes/names.py says of a name without an address
_SHOWN = 3


@dataclass(frozen=True)
class _Node:
    """Answers of one node. differs: name -> its own answer, if it differs from the table's. looked_up: how many of the
    names that follow its own in the table it asked for; None: all."""

    name: str
    differs: dict[str, str]
    different: int
    evidence: str
    looked_up: int | None

    @property
    def is_whole(self) -> bool:
        return len(self.differs) == self.different


def compared(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive discovery.names.differ and discovery.names.own per node."""
    table = {fact.subject: fact.value for fact in observed.of("names.address")}
    nodes = _nodes(derived, observed)
    if len(nodes) < 2:
        for node in nodes.values():
            derived.saw("discovery.names.differ", node.name, None, "count", node.evidence, "no other node answered")
        return
    if sum(not node.is_whole for node in nodes.values()) * 2 > len(nodes):
        _table_is_wrong(derived, observed, nodes)
        return
    own_addresses = {
        fact.subject: set(fact.value) for fact in observed.of("names.own_addresses") if isinstance(fact.value, list)
    }
    listed = {name for node in nodes.values() for name in node.differs if name in table}  # the others lead alike
    places = {name: place for place, name in enumerate(table)}
    answers = {name: _answers(name, table[name], nodes, places) for name in listed}
    right: dict[str, str | None]
    right = {name: str(answer) for name, answer in table.items() if answer is not None}
    right |= {name: _right(of_name, own_addresses.get(name, set())) for name, of_name in answers.items()}
    _differ(derived, nodes, answers, right)
    _own(derived, observed, right)


def _nodes(derived: Parsed, observed: Seen) -> dict[str, _Node]:
    lists = {fact.subject: fact.value for fact in observed.of("names.differ")}
    counts = {fact.subject: fact.value for fact in observed.of("names.looked_up") if isinstance(fact.value, int)}
    nodes = {}
    for fact in observed.of("names.different"):
        listed = lists.get(fact.subject)
        if not isinstance(fact.value, int) or not isinstance(listed, list):
            why = fact.why or "the names in which it differs did not arrive"
            derived.saw("discovery.names.differ", fact.subject, None, "count", fact.evidence, why)
            continue
        differs = {name: answer for name, _, answer in (entry.partition(" ") for entry in listed)}
        nodes[fact.subject] = _Node(fact.subject, differs, fact.value, fact.evidence, counts.get(fact.subject))
    return nodes


def _table_is_wrong(derived: Parsed, observed: Seen, nodes: dict[str, _Node]) -> None:
    """Whether most nodes differ from the table in more names than they can list."""
    maker = next((fact.subject for fact in observed.of("probe.names_table.finished")), "the first node")
    most = max(node.different for node in nodes.values())
    for node in nodes.values():
        if node.name == maker:
            why = f"most of the other nodes know other addresses than {maker}"
            derived.saw("discovery.names.differ", node.name, most, "count", node.evidence, why)
        else:
            why = f"it could only be compared with {maker}, of which most nodes differ"
            derived.saw("discovery.names.differ", node.name, None, "count", node.evidence, why)


def _answers(name: str, expected: object, nodes: dict[str, _Node], places: dict[str, int]) -> dict[str, str]:
    """Node -> its address of this name. The named node itself is left out, because it may resolve to 127.0.1.1."""
    answers = {}
    for node in nodes.values():
        distance = (places[name] - places.get(node.name, 0)) % len(places)
        asked = node.looked_up is None or distance <= node.looked_up
        answer = node.differs.get(name, expected if node.is_whole and asked else None)
        if node.name != name and isinstance(answer, str) and answer != NOWHERE:
            answers[node.name] = answer
    return answers


def _right(answers: dict[str, str], own_addresses: set[str]) -> str | None:
    """Return the answer of most nodes. If any node knows an address that the named node has, only those count."""
    leading = [answer for answer in answers.values() if own_addresses.issuperset(answer.split(","))]
    ranked = Counter(leading or answers.values()).most_common(2)
    if not ranked or (len(ranked) == 2 and ranked[0][1] == ranked[1][1]):
        return None
    return ranked[0][0]


def _differ(
    derived: Parsed, nodes: dict[str, _Node], answers: dict[str, dict[str, str]], right: dict[str, str | None]
) -> None:
    for node in nodes.values():
        different = [
            f"{name} is {of_name[node.name]}, {_others(right[name])}"
            for name, of_name in answers.items()
            if node.name in of_name and of_name[node.name] != right[name]
        ]
        count = len(different) if node.is_whole else max(len(different), node.different)
        why = first_few(different, _SHOWN, count)
        derived.saw("discovery.names.differ", node.name, count, "count", node.evidence, why or None)


def _others(right: str | None) -> str:
    return "and no two others agree" if right is None else f"and should be {right}"


def _own(derived: Parsed, observed: Seen, right: dict[str, str | None]) -> None:
    """discovery.names.own: the node has every address that the others use for it."""
    for fact in observed.of("names.own_addresses"):
        used = right.get(fact.subject)
        value, why = _is_own(fact, used)
        derived.saw("discovery.names.own", fact.subject, value, "flag", fact.evidence, why)


def _is_own(fact: Observation, used: str | None) -> tuple[bool | None, str]:
    if not isinstance(fact.value, list):
        return None, fact.why or "its addresses did not arrive"
    if used is None:
        return None, "no other node knows one address of it"
    has = ", ".join(fact.value) or "none"
    return set(used.split(",")) <= set(fact.value), f"others reach it at {used}; it has {has}"
