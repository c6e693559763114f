"""What the cluster is: a line per fact of the nodes, with the value of most of them and the nodes that differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from bringup.evidence.names import listed
from bringup.records import Observation, Run

TOPICS: dict[str, tuple[tuple[str, str], ...]] = {
    "GPUs": (
        ("GPU", "discovery.gpu.model"),
        ("GPUs of a node", "discovery.gpu.count"),
        ("memory of a GPU", "discovery.gpu.memory"),
        ("GPU driver", "discovery.gpu.driver"),
        ("CUDA of the driver", "discovery.gpu.cuda"),
        ("NVLinks of a GPU", "discovery.gpu.nvlinks"),
    ),
    "network": (
        ("RDMA ports in detail", "discovery.rdma.same"),
        ("RDMA ports", "discovery.rdma.rate"),
        ("network interfaces", "inventory.network"),
        ("NCCL library", "discovery.library.libnccl"),
    ),
    "host": (
        ("processor", "discovery.cpu.model"),
        ("cores", "discovery.cpu.count"),
        ("memory", "inventory.memory"),
        ("mount of the checkout", "discovery.mount"),
    ),
    "software": (
        ("operating system", "discovery.os"),
        ("kernel", "discovery.kernel"),
        ("Python of the system", "discovery.python"),
        ("Slurm", "discovery.slurm.version"),
    ),
}
OF_NODES = tuple(fact for topic in TOPICS.values() for fact in topic)
CLUSTER = "slurm.config.ClusterName"
ONLY_WHERE_THEY_DIFFER = {"RDMA ports in detail"}  # long, and said in short by another fact
NO_MAJORITY = "nodes differ, without a majority"
MAX_DIFFERENT = 5  # values; more are counted


@dataclass(frozen=True)
class Fact:
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


def cluster_name(judged: Iterable[Seen]) -> str | None:
    for run in judged:
        names = (seen.value for seen in run.observations if seen.quantity == CLUSTER)
        name = run.run.cluster or next((str(name) for name in names if name is not None), None)
        if name is not None:
            return name
    return None


class Seen(Protocol):
    """A run, and what was seen in it."""

    @property
    def run(self) -> Run: ...

    @property
    def observations(self) -> Sequence[Observation]: ...


def facts(judged: Sequence[Seen]) -> list[Fact]:
    """The facts of the last run that asked for them. A fact that no run found out is left out: its gate says why."""
    wanted = {quantity for _, quantity in OF_NODES}
    seen: dict[str, dict[str, str]] = {}
    for run in judged:
        for quantity, by_node in _of_one_run(run, wanted).items():
            seen.setdefault(quantity, {}).update(by_node)
    known = [_fact(what, seen[quantity]) for what, quantity in OF_NODES if quantity in seen]
    return [fact for fact in known if fact is not None]


def _of_one_run(judged: Seen, wanted: Container[str]) -> dict[str, dict[str, str]]:
    """Quantity -> node -> its value; of a node that does not say it as a whole, the values of its parts, counted:
    `8 × 400 Gb/sec`."""
    nodes = set(judged.run.nodes)
    whole: dict[str, dict[str, str]] = {}
    parts: dict[str, dict[str, Counter[str]]] = {}
    for observation in judged.observations:
        if observation.quantity not in wanted:
            continue
        node, _, part = observation.subject.partition("/")
        if node not in nodes:
            continue
        if part:
            parts.setdefault(observation.quantity, {}).setdefault(node, Counter())[in_words(observation)] += 1
        else:
            whole.setdefault(observation.quantity, {})[node] = in_words(observation)
    for quantity, by_node in parts.items():
        for node, counts in by_node.items():
            known = ", ".join(f"{count} × {value}" for value, count in counts.most_common() if value)
            whole.setdefault(quantity, {}).setdefault(node, known)
    return whole


def in_words(observation: Observation) -> str:
    value = observation.value
    if value is None:
        return ""
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if observation.unit == "GiB":  # what a kernel keeps for itself differs by megabytes
        return f"{float(value):.0f} GiB"
    return str(value)


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
