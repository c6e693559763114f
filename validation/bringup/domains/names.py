"""The addresses that node names resolve to, compared over the fleet.

One node resolves all names: the table. Every other node reports the names that it resolves differently. So the number
of facts is the number of nodes, not of pairs.
"""

from collections import Counter
from typing import NamedTuple

from bringup.kernel.facts.names import first_few
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.records import Run

NOWHERE = "none"  # as probes/names.py says of a name without an address
_SHOWN = 3


class _Node(NamedTuple):
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
    """Derive per node discovery.names.differ; and discovery.names.own: it has every address that others use for it."""
    table = {fact.subject: fact.value for fact in observed.of("names.address")}
    nodes = _nodes(derived, observed)
    if len(nodes) < 2:
        for node in nodes:
            derived.saw("discovery.names.differ", node.name, None, "count", node.evidence, "no other node answered")
        return
    if sum(not node.is_whole for node in nodes) * 2 > len(nodes):
        _table_is_wrong(derived, observed, nodes)
        return
    addresses = observed.of("names.own_addresses")
    own = {fact.subject: set(fact.value) for fact in addresses if isinstance(fact.value, list)}
    listed = {name for node in nodes for name in node.differs if name in table}  # the others lead alike
    places = {name: place for place, name in enumerate(table)}
    answers = {name: _answers(name, table[name], nodes, places) for name in listed}
    right: dict[str, str | None] = {name: str(answer) for name, answer in table.items() if answer is not None}
    right |= {name: _right(of_name, own.get(name, set())) for name, of_name in answers.items()}
    for node in nodes:
        different = [
            f"{name} is {mine}, and {f'should be {right[name]}' if right[name] else 'no two others agree'}"
            for name, of_name in answers.items()
            if (mine := of_name.get(node.name)) is not None and mine != right[name]
        ]
        count = len(different) if node.is_whole else max(len(different), node.different)
        why = first_few(different, _SHOWN, count)
        derived.saw("discovery.names.differ", node.name, count, "count", node.evidence, why or None)
    for fact in addresses:
        used, value = right.get(fact.subject), None
        if not isinstance(fact.value, list):
            why = fact.why or "its addresses did not arrive"
        elif used is None:
            why = "no other node knows one address of it"
        else:
            value = set(used.split(",")) <= set(fact.value)
            why = f"others reach it at {used}; it has {', '.join(fact.value) or 'none'}"
        derived.saw("discovery.names.own", fact.subject, value, "flag", fact.evidence, why)


def _nodes(derived: Parsed, observed: Seen) -> list[_Node]:
    lists = {fact.subject: fact.value for fact in observed.of("names.differ")}
    counts = {fact.subject: fact.value for fact in observed.of("names.looked_up") if isinstance(fact.value, int)}
    nodes = []
    for fact in observed.of("names.different"):
        listed = lists.get(fact.subject)
        if not isinstance(fact.value, int) or not isinstance(listed, list):
            why = fact.why or "the names in which it differs did not arrive"
            derived.saw("discovery.names.differ", fact.subject, None, "count", fact.evidence, why)
            continue
        differs = {name: answer for name, _, answer in (entry.partition(" ") for entry in listed)}
        nodes.append(_Node(fact.subject, differs, fact.value, fact.evidence, counts.get(fact.subject)))
    return nodes


def _table_is_wrong(derived: Parsed, observed: Seen, nodes: list[_Node]) -> None:
    """Whether most nodes differ from the table in more names than they can list."""
    maker = next((fact.subject for fact in observed.of("probe.names_table.finished")), "the first node")
    for node in nodes:
        value, why = None, f"it could only be compared with {maker}, of which most nodes differ"
        if node.name == maker:
            value = max(other.different for other in nodes)
            why = f"most of the other nodes know other addresses than {maker}"
        derived.saw("discovery.names.differ", node.name, value, "count", node.evidence, why)


def _answers(name: str, expected: object, nodes: list[_Node], places: dict[str, int]) -> dict[str, str]:
    """Node -> its address of this name. The named node itself is left out, because it may resolve to 127.0.1.1."""
    answers = {}
    for node in nodes:
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
