"""What a run goes on without: nodes that failed a phase, and hardware that no node has."""

from collections import defaultdict
from collections.abc import Iterable

from bringup.kernel import judge
from bringup.kernel.facts.names import first_few
from bringup.kernel.facts.parser_result import Seen
from bringup.kernel.plan import catalogue, subjects
from bringup.kernel.plan.variants import NVLINK, RDMA
from bringup.kernel.records import Verdict
from bringup.report.campaigns import LeftOut

_NAMED = 3


def unhealthy_nodes(judged: judge.Judged) -> list[LeftOut] | None:
    """Find nodes whose own faults explain everything that would stop the later phases. Empty: nothing would.

    A failed gate of a node or rank blames that node. Failed gates of pairs blame the node that all failing pairs share.
    A node's gate may explain a gate of the whole job. None: something else is wrong (the job, a scale, a single link),
    or more than half of the nodes failed: a fault of the cluster or of the expectations.
    """
    run, faults = judged.run, defaultdict[str, list[Verdict]](list)
    pairs: list[Verdict] = []
    stopping = [verdict for verdict in judged.verdicts.verdicts if judge.stops(verdict)]
    at_fault = {verdict.gate for verdict in stopping}
    for verdict in stopping:
        gate = catalogue.GATES.get(verdict.gate)
        if gate is not None and gate.per in ("node", "rank"):
            faults[subjects.nodes_of(verdict.subject)[0]].append(verdict)
        elif gate is not None and gate.per in ("pair", "link"):
            pairs.append(verdict)
        elif gate is None or at_fault.isdisjoint(gate.explained_by):
            return None
    unexplained = [verdict for verdict in pairs if faults.keys().isdisjoint(subjects.nodes_of(verdict.subject))]
    if unexplained:
        node = subjects.shared_node(verdict.subject for verdict in unexplained)
        if node is None:
            return None
        faults[node] = unexplained
    if not faults.keys() <= set(run.nodes) or 2 * len(faults) > len(run.nodes):
        return None
    left_out = []
    for node in (node for node in run.nodes if node in faults):
        ordered = sorted(faults[node], key=lambda verdict: -verdict.outcome.rank)  # faults before gaps
        words = list(dict.fromkeys(f"{verdict.gate} {verdict.outcome}" for verdict in ordered))
        left_out.append(LeftOut(node=node, phase=run.phase, why=first_few(words, _NAMED)))
    return left_out


VARIABLE = "BRINGUP_LACKING"


def lacking(judged: Iterable[judge.Judged]) -> str:
    """Name what the last discovery lacked, `rdma nvlink`. Only what every node answered: silence is no absence."""
    if (discovery := {run.run.phase: run for run in judged}.get("discovery")) is None:
        return ""
    seen, nodes = Seen(discovery.observations), len(discovery.run.nodes)
    counts = [fact.value for fact in seen.of("discovery.rdma.ports")]
    states = [fact.value for fact in seen.of("discovery.rdma.state") if "/" in fact.subject]
    links = [fact.value for fact in seen.of("discovery.gpu.nvlinks") if "/" in fact.subject]
    has_no_rdma = len(counts) == nodes and all(isinstance(count, int) for count in counts)
    has_no_rdma = has_no_rdma and all(isinstance(state, str) and "ACTIVE" not in state for state in states)
    has_no_nvlink = len(links) == nodes * discovery.run.gpus_per_node and all(link == 0 for link in links)
    return " ".join(name for name, is_lacking in ((RDMA, has_no_rdma), (NVLINK, has_no_nvlink)) if is_lacking)
