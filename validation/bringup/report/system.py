"""What the cluster is: a line per fact of the nodes, with the value of most of them and the nodes that differ."""

import re
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from bringup.kernel.facts.names import listed
from bringup.kernel.judge import Judged
from bringup.kernel.records import Observation, Record, known


class _Table(Record):
    topics: dict[str, dict[str, str]]  # topic -> what -> quantity
    at_once: list[str]
    where_nodes_differ: list[str]


TABLE = known("cluster_facts", _Table)
OF_NODES = tuple(fact for topic in TABLE.topics.values() for fact in topic.items())
CLUSTER = "slurm.config.ClusterName"
INTERFACES = "inventory.network"
PARTITIONS = "slurm.partitions"
_CPU = re.compile(r"cores (\d+), threads (\d+)")
NO_MAJORITY = "nodes differ, without a majority"
MAX_DIFFERENT = 5  # values; more are counted


class Fact(NamedTuple):
    what: str
    value: str  # of most nodes
    nodes: int  # that have it
    asked: int  # nodes that were asked
    others: list[tuple[str, str]]  # another value, and the nodes that have it

    @property
    def scope(self) -> str:
        if not self.nodes:
            return f"{self.asked} nodes"
        return "all nodes" if self.nodes == self.asked else f"{self.nodes} of {self.asked} nodes"


def cluster_name(judged: Iterable[Judged]) -> str | None:
    names = ([run.run.cluster, *(seen.value for seen in run.seen.of(CLUSTER))] for run in judged)
    return next((str(name) for of_run in names for name in of_run if name), None)


def facts(judged: Iterable[Judged]) -> list[Fact]:
    """Return the facts of the last run that asked for them, without those that no run found: their gates say why. A
    node that does not say it as a whole has the values of its parts, counted: `8 × 400 Gb/sec`."""
    seen: dict[str, dict[str, str]] = {}
    for run, quantity in ((run, quantity) for run in judged for _, quantity in OF_NODES):
        nodes, whole, parts = set(run.run.nodes), dict[str, str](), dict[str, list[str]]()
        for each in run.seen.of(quantity):
            node, _, part = each.subject.partition("/")
            if node in nodes and part:
                parts.setdefault(node, []).append(in_words(each))
            elif node in nodes:
                whole[node] = in_words(each)
        counted = {node: _counts(tuple(values)) for node, values in parts.items() if node not in whole}
        seen.setdefault(quantity, {}).update(whole | counted)
    return [fact for what, quantity in OF_NODES if (fact := _fact(what, seen.get(quantity, {}))) is not None]


def table(run: Judged) -> list[tuple[str, str]]:
    """Return the facts of one run, a row for each topic; first what differs between the nodes."""
    known = {fact.what: fact for fact in facts([run])}
    differ = [(fact, [f"{value}: {where}" for value, where in fact.others]) for fact in known.values() if fact.others]
    rows = [(fact.what, "; ".join([f"{fact.value} ({fact.scope})", *others])) for fact, others in differ]
    for topic, of_topic in TABLE.topics.items():
        alike = [
            known[what].value if what == topic else f"{what}: {known[what].value}"
            for what in of_topic
            if what in known and not known[what].others and what not in TABLE.where_nodes_differ
        ]
        rows += [(topic, "; ".join(alike))] if alike else []
    partitions = [in_words(seen) for seen in run.seen.of(PARTITIONS) if seen.value]
    return [*rows, *([("partitions", "; ".join(partitions))] if partitions else [])]


def in_words(observation: Observation) -> str:
    if (value := observation.value) is None:
        return ""
    if isinstance(value, list):
        counted = observation.quantity == INTERFACES
        return ", ".join(_counted(str(each)) if counted else str(each) for each in value)
    if observation.quantity == "discovery.cpu.topology" and (counts := _CPU.search(str(value))) is not None:
        return f"{value}, SMT {'on' if int(counts[2]) > int(counts[1]) else 'off'}"
    if observation.unit == "GiB":  # what a kernel keeps for itself differs by megabytes
        return f"{float(value):.0f} GiB"
    return str(value)


@lru_cache(maxsize=64)
def _counts(values: tuple[str, ...]) -> str:
    return ", ".join(f"{count} × {value}" for value, count in Counter(values).most_common() if value)


def _counted(setting: str) -> str:
    """Write `1 × virtual, …, MTU 1500` for `virtual, …, MTU 1500=1`, and `default route over none`."""
    name, _, value = setting.rpartition("=")
    return f"{value} × {name}" if value.isdigit() else f"{name} {value}"


def _fact(what: str, by_node: dict[str, str]) -> Fact | None:
    counts = Counter(by_node.values())
    known = [value for value, _ in counts.most_common() if value]
    if not known:
        return None
    usual = known[0] if len(known) == 1 or counts[known[0]] > counts[known[1]] else NO_MAJORITY
    rest = [value for value, _ in counts.most_common() if value != usual]
    others = [
        (value or "not found out", listed([node for node in by_node if by_node[node] == value]))
        for value in rest[:MAX_DIFFERENT]
    ]
    if len(rest) > MAX_DIFFERENT:
        left = sum(counts[value] for value in rest[MAX_DIFFERENT:])
        others.append((f"{len(rest) - MAX_DIFFERENT} more values", f"{left} nodes"))
    return Fact(what, usual, counts[usual], len(by_node), others)
