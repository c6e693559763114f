"""One bad node must not cost the others their answer: which nodes a run leaves out after a phase."""

from __future__ import annotations

from collections import defaultdict

from bringup import judge
from bringup.checks import catalogue
from bringup.judge import Judged
from bringup.plan import subjects
from bringup.records import LeftOut, Verdict

_NAMED = 3


def ill_nodes(judged: Judged) -> list[LeftOut] | None:
    """Nodes whose own faults explain all that would stop the phases after this one; none: nothing does.

    A gate about a node or a rank speaks against that node, a gate about a pair against the node that all failing
    pairs have in common; a gate of the whole job may be explained by a node's. None: something else is wrong (the job,
    a scale, a single link), or most nodes are ill, which is a fault of the cluster or of what was expected.
    """
    own: dict[str, list[Verdict]] = defaultdict(list)
    pairs: list[Verdict] = []
    stopping = [verdict for verdict in judged.verdicts.verdicts if judge.stops(verdict)]
    at_fault = {verdict.gate for verdict in stopping}
    for verdict in stopping:
        gate = catalogue.GATES.get(verdict.gate)
        if gate is not None and gate.per in ("node", "rank"):
            own[subjects.nodes_of(verdict.subject)[0]].append(verdict)
        elif gate is not None and gate.per in ("pair", "link"):
            pairs.append(verdict)
        elif gate is None or at_fault.isdisjoint(gate.explained_by):
            return None
    unexplained = [verdict for verdict in pairs if not own.keys() & set(subjects.nodes_of(verdict.subject))]
    if unexplained:
        common = set.intersection(*(set(subjects.nodes_of(verdict.subject)) for verdict in unexplained))
        if len(common) != 1:
            return None
        own[common.pop()] = unexplained
    if not own.keys() <= set(judged.run.nodes) or 2 * len(own) > len(judged.run.nodes):
        return None
    return [
        LeftOut(node=node, phase=judged.run.phase, why=_named(own[node])) for node in judged.run.nodes if node in own
    ]


def _named(verdicts: list[Verdict]) -> str:
    """`discovery.gpu.count fail; and 2 more`: faults before gaps."""
    ordered = sorted(verdicts, key=lambda verdict: -verdict.outcome.rank)
    said = list(dict.fromkeys(f"{verdict.gate} {verdict.outcome}" for verdict in ordered))
    more = f"; and {len(said) - _NAMED} more" if len(said) > _NAMED else ""
    return "; ".join(said[:_NAMED]) + more
