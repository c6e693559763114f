"""What the runs show of each line of a contract: proven, refuted, not proven, or not asked.

The nodes of the contract are the yardstick: a line that held on fewer of them is not proven. All runs that are named
count: a line that failed in one of them is refuted, also if it held in another one. A placeholder proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from bringup.accept.contract import NODES, Contract, Line
from bringup.accept.records import Result, State
from bringup.kernel.answers import in_words, not_real, number_of, title
from bringup.kernel.facts.names import first_few, listed
from bringup.kernel.facts.parser_result import Seen, is_number
from bringup.kernel.judge import Judged
from bringup.kernel.judge.verdict import Requirement
from bringup.kernel.plan import stand_ins, subjects
from bringup.kernel.plan.catalogue import bearing_on
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.expectation import size_bytes
from bringup.kernel.plan.gate import Fixed, Gate, Guide
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Action, Mark, Observation, Outcome, Verdict, grouped
from bringup.registry import SOAKED, called
from bringup.report.collection import Collection
from bringup.report.text import many, sentence

SIMULATED = "the GPUs are simulated: their UUIDs say so"
# statements of phases that take fewer nodes than there are: one node speaks for all
_OF_FEWER = {claim.id for claim in CLAIMS if any(PHASES[stem].max_nodes is not None for stem in claim.phases)}
_OF_DEVICES = re.compile(r"\.(gpu|rdma|topology)\b")
_OF_SOAK = "soak."  # GPU, link, …: hours for one fault (docs/soak.md)
_IN_SLURM = "slurm.node.state"  # Slurm's table of nodes names all that the cluster has
_PORTS = "discovery.rdma.ports"
_GUIDE = Guide(title="a line of a contract", page="acceptance", action=Action.INSPECT)


def of_contract(contract: Contract, runs: Collection, limits: Mapping[str, str] = MappingProxyType({})) -> list[Result]:
    """Return a result for each line, behind that of the nodes. limits: check -> how small a fault it found."""
    made = []
    for name, line in {NODES: Line(says=f"the nodes {contract.nodes}"), **contract.lines}.items():
        evidence = _Evidence(contract, line, runs)
        if name == NODES:
            evidence.of_nodes()
        elif line.checks:
            evidence.of_checks()
        elif line.statements:
            evidence.of_statements()
        elif line.fact:
            evidence.of_fact(line.fact)
        else:
            evidence.seen = f"bringup cannot show it; {line.shown_by or 'nothing is named'}"
        state, asking = evidence.state(), [*line.gates, (line.fact or "").partition("@")[0]]
        result = Result(
            line=name,
            says=line.says,
            state=state,
            seen=evidence.seen,
            why=first_few(list(dict.fromkeys([*evidence.against, *evidence.gaps])), 3) or None,
            limits=[limits[gate] for gate in dict.fromkeys(asking) if gate in limits],
            runs=list(evidence.by),
            exception=line.exception,
        )
        made.append(result)
    return made


@dataclass
class _Evidence:
    """What speaks for a line, and against it; on which nodes, by which runs."""

    contract: Contract
    line: Line
    runs: Collection
    nodes: set[str] = field(default_factory=set)
    by: dict[str, None] = field(default_factory=dict)
    against: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)  # why it is not proven, although nothing speaks against it
    seen: str = ""  # the number
    asked: bool = False

    def state(self) -> State:
        if self.against or not self.asked:
            return State.REFUTED if self.against else State.NOT_ASKED
        if elsewhere := [node for node in self.contract.node_names if node not in self.nodes]:
            self.gaps.append(f"not on {listed(elsewhere)}")
        return State.NOT_PROVEN if self.gaps else State.PROVEN

    def takes(self, run: Judged, subject: str) -> bool:
        """Take what a run says of a subject, but of nodes that were not sold."""
        nodes = set(_nodes_of(subject, run)).intersection(self.contract.node_names)
        if nodes:
            name, self.asked = f"{run.run.phase} {run.run.name.removeprefix(f'{run.run.phase}-')}", True
            self.nodes |= nodes
            self.by[name] = None
            if (objection := run.objection) is not None:
                self.gaps.append(f"the evidence of {name} does not count: {objection}")
        return bool(nodes)

    def weigh(self, verdict: Verdict, subject: str, *, may_refute: bool = True) -> None:
        if verdict.outcome is not Outcome.PASS:
            refutes = may_refute and verdict.outcome in (Outcome.FAIL, Outcome.WARN)
            (self.against if refutes else self.gaps).append(f"{subject}: {sentence(verdict)}")

    def of_nodes(self) -> None:
        """Ask whether each node that was sold is in Slurm's table and took part."""
        for run in self.runs.judged:
            for node in run.run.nodes:
                self.takes(run, node)
        names = self.contract.node_names
        known = {seen.subject for run in self.runs.judged for seen in run.seen.of(_IN_SLURM)}
        if absent := [node for node in names if node not in known] if known else []:
            self.against.append(f"Slurm knows no {listed(absent)}")
        self.seen = f"{len(self.nodes)} of {len(names)} took part"

    def of_checks(self) -> None:
        gates, asked, count = set(self.line.gates), set[str](), 0
        for run in self.runs.judged:
            here = [verdict for verdict in run.verdicts.verdicts if verdict.gate in gates]
            for verdict in (each for each in here if self.takes(run, each.subject)):
                asked.add(verdict.gate)
                count += 1
                self.weigh(verdict, f"{title(verdict.gate)} [{verdict.subject}]")
            self.gaps += _placeholders(run, {verdict.gate for verdict in here})
        excluded = {entry.gate: entry.reason for run in self.runs.judged for entry in run.verdicts.not_applicable}
        for gate in (each for each in self.line.gates if each not in asked):
            self.gaps.append(f"not asked: {title(gate)} ({excluded.get(gate, 'no run asked it')})")
        self.seen = many(count, "verdict")

    def of_statements(self) -> None:
        claims = [claim for answer in self.runs.answers for claim in answer.claims]
        claims = [claim for claim in claims if claim.claim in self.line.statements]
        gates = {*self.line.gates, *(gate for statement in self.line.statements for gate in bearing_on(statement))}
        self.asked = any(claim.mark is not Mark.NOT_ASKED for claim in claims)
        for run in self.runs.judged if self.asked else []:
            if any(verdict.gate in gates for verdict in run.verdicts.verdicts):
                self.takes(run, subjects.JOB)
        on_all = (claim.nodes for claim in claims if claim.claim not in _OF_FEWER)
        self.nodes = set(self.contract.node_names).intersection(*on_all)
        for claim in claims:
            if claim.mark not in (Mark.PASS, Mark.WARN):
                why = f"{claim.says}: {claim.why}" if len(claims) > 1 else claim.why or claim.mark.word
                (self.against if claim.mark is Mark.FAIL else self.gaps).append(why)
        self.seen = many(sum(claim.verdicts for claim in claims), "verdict")

    def of_fact(self, fact: str) -> None:
        line, verdicts = self.line, list[Verdict]()
        # all runs together say how rare a fault is, and too few hours refute nothing
        soaked = called(SOAKED)(self.runs.judged) if fact.startswith(_OF_SOAK) else []
        for run in (run for run in self.runs.judged if line.phase in (None, run.run.phase)):
            chosen = _chosen(fact, Seen(soaked) if soaked else run.seen)
            if chosen := [seen for seen in chosen if self.takes(run, seen.subject)]:
                asked = [verdict.gate for verdict in run.verdicts.verdicts] if soaked else [fact]
                is_of_devices = any("/" in seen.subject for seen in chosen) or bool(_OF_DEVICES.search(fact))
                self.gaps += _placeholders(run, asked, is_of_devices)
                self.gaps += self._silent(fact, run, [seen.subject for seen in chosen])
            verdicts += [_compared(line, seen) for seen in (_lists(chosen) if line.on_nodes else chosen)]
        for verdict in verdicts:
            self.weigh(verdict, verdict.subject, may_refute=not soaked)
        number = number_of(verdicts)
        self.seen = "nothing" if number is None else in_words(number)

    def _silent(self, fact: str, run: Judged, subjects: Iterable[str]) -> list[str]:
        """Say where fewer devices answered than were sold or planned (GPUs), than are there (ports), or elsewhere."""
        named = grouped((subject.partition("/")[0], subject) for subject in subjects if "/" in subject)
        answered = {node: len(set(several)) for node, several in named.items()}
        gpus = self.contract.gpus_per_node or run.run.gpus_per_node
        most = max([gpus if ".gpu" in fact else 0, *answered.values()])
        ports = {seen.subject: int(seen.value) for seen in run.seen.of(_PORTS) if is_number(seen.value)}
        there = {node: max(most, ports.get(node, 0)) if ".rdma." in fact else most for node in answered}
        return [f"{node}: {count} of {there[node]} answered" for node, count in answered.items() if count < there[node]]


def _chosen(fact: str, seen: Seen) -> list[Observation]:
    """Return the fact at its size and on its scale; the largest and the widest, where the line names none."""
    largest = max(seen.starting_with(f"{fact}@"), key=lambda at: size_bytes(at.partition("@")[2]) or 0, default=fact)
    of_fact = seen.of(fact) or seen.of(largest)
    scales = [subjects.nodes_of_scale(each.subject) for each in of_fact]
    widest = max(filter(None, scales), default=None)
    return [each for each, nodes in zip(of_fact, scales, strict=True) if widest in (None, nodes)]


def _lists(chosen: Iterable[Observation]) -> list[Observation]:
    """Make one text of each node's values, in any order: serial numbers."""
    of_nodes = grouped((seen.subject.partition("/")[0], seen) for seen in chosen if seen.value is not None)
    values = {node: ", ".join(sorted(str(seen.value) for seen in several)) for node, several in of_nodes.items()}
    return [of[0].model_copy(update={"subject": node, "value": values[node]}) for node, of in of_nodes.items()]


def _compared(line: Line, seen: Observation) -> Verdict:
    fact, _, at = seen.quantity.partition("@")
    limit = line.limit if line.on_nodes is None else ", ".join(sorted(line.on_nodes.get(seen.subject, ()))) or None
    asks = {"phases": (), "per": "job", "proves": line.says, "guide": _GUIDE, "expect": Fixed(value=line.limit)}
    gate = Gate.model_validate({**asks, "id": fact, "unit": line.unit or seen.unit, "rule": line.rule})
    return Requirement(gate, limit, at or None).compared(seen)


def _placeholders(run: Judged, gates: Iterable[str], is_of_devices: bool = False) -> list[str]:
    names = not_real(run, gates)
    if (names or is_of_devices) and stand_ins.are_in(run.observations):
        return [SIMULATED]
    return [f"no {' or '.join(names)} was seen at work"] if names else []


def _nodes_of(subject: str, run: Judged) -> list[str]:
    """Name the nodes that a subject of this run speaks of: all, for its job and the scale of all."""
    if (number := subjects.nodes_of_scale(subject)) is not None:
        return run.run.nodes[:number]
    return run.run.nodes if subject == subjects.JOB else subjects.nodes_of(subject)
