"""What a run goes on without: nodes that failed a phase, and hardware that no node has."""

from collections import defaultdict
from collections.abc import Iterable

from bringup.kernel import judge
from bringup.kernel.facts.names import first_few
from bringup.kernel.judge import Judged
from bringup.kernel.plan import catalogue, subjects
from bringup.kernel.plan.variants import NVLINK, RDMA
from bringup.kernel.records import LeftOut, Verdict, grouped

_NAMED = 3


def unhealthy_nodes(judged: Judged) -> list[LeftOut] | None:
    """Find nodes whose own faults explain everything that would stop the later phases. Empty: nothing would.

    A failed gate of a node or rank blames that node. Failed gates of pairs blame the node that all failing pairs share.
    A node's gate may explain a gate of the whole job. None: something else is wrong (the job, a scale, a single link),
    or more than half of the nodes failed: a fault of the cluster or of the expectations.
    """
    faults_by_node: dict[str, list[Verdict]] = defaultdict(list)
    pairs: list[Verdict] = []
    stopping = [verdict for verdict in judged.verdicts.verdicts if judge.stops(verdict)]
    at_fault = {verdict.gate for verdict in stopping}
    for verdict in stopping:
        gate = catalogue.GATES.get(verdict.gate)
        if gate is not None and gate.per in ("node", "rank"):
            faults_by_node[subjects.nodes_of(verdict.subject)[0]].append(verdict)
        elif gate is not None and gate.per in ("pair", "link"):
            pairs.append(verdict)
        elif gate is None or at_fault.isdisjoint(gate.explained_by):
            return None
    unexplained = [verdict for verdict in pairs if not faults_by_node.keys() & set(subjects.nodes_of(verdict.subject))]
    if unexplained:
        node = subjects.shared_node(verdict.subject for verdict in unexplained)
        if node is None:
            return None
        faults_by_node[node] = unexplained
    if not faults_by_node.keys() <= set(judged.run.nodes) or 2 * len(faults_by_node) > len(judged.run.nodes):
        return None
    return [
        LeftOut(node=node, phase=judged.run.phase, why=_named(faults_by_node[node]))
        for node in judged.run.nodes
        if node in faults_by_node
    ]


def _named(verdicts: list[Verdict]) -> str:
    """Name faults before gaps: `discovery.gpu.count fail; and 2 more`."""
    ordered = sorted(verdicts, key=lambda verdict: -verdict.outcome.rank)
    words = list(dict.fromkeys(f"{verdict.gate} {verdict.outcome}" for verdict in ordered))
    return first_few(words, _NAMED)


VARIABLE = "BRINGUP_LACKING"


def lacking(judged: Iterable[Judged]) -> str:
    """Name what the last discovery lacked, `rdma nvlink`. Only what every node answered: silence is no absence."""
    discovery = {run.run.phase: run for run in judged}.get("discovery")
    if discovery is None:
        return ""
    values = grouped(
        (fact.quantity, fact.value)
        for fact in discovery.observations
        if fact.quantity == "discovery.rdma.ports" or "/" in fact.subject
    )
    states = values.get("discovery.rdma.state", [])
    counts = values.get("discovery.rdma.ports", [])
    links = values.get("discovery.gpu.nvlinks", [])
    has_no_rdma = len(counts) == len(discovery.run.nodes) and all(isinstance(count, int) for count in counts)
    has_no_rdma = has_no_rdma and all(isinstance(state, str) and "ACTIVE" not in state for state in states)
    has_no_nvlink = len(links) == len(discovery.run.nodes) * discovery.run.gpus_per_node and all(
        link == 0 for link in links
    )
    return " ".join(name for name, is_lacking in ((RDMA, has_no_rdma), (NVLINK, has_no_nvlink)) if is_lacking)
