"""What the runs show of each line of a contract: proven, refuted, not proven, or not asked.

The nodes of the contract are the yardstick: a line that held on fewer of them is not proven. All runs that are named
count: a line that failed in one of them is refuted, also if it held in another one. A placeholder proves nothing.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bringup.accept.contract import NODES, RULES, Contract, Line
from bringup.accept.records import Result, State
from bringup.kernel.answers import in_words, not_real, number_of, title
from bringup.kernel.facts.names import first_few, listed
from bringup.kernel.facts.parser_result import Seen, numbers
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

# statements of phases that take fewer nodes than there are: one node speaks for all
_OF_FEWER = {claim.id for claim in CLAIMS if any(PHASES[stem].max_nodes is not None for stem in claim.phases)}
_OF_DEVICES = re.compile(r"\.(gpu|rdma|topology)\b")
_IN_SLURM = "slurm.node.state"  # Slurm's table of nodes names all that the cluster has
_PORTS = "discovery.rdma.ports"
_OF_SOAK = "soak."  # GPU, link, …: hours for one fault (docs/soak.md)
_GUIDE = Guide(title="a line of a contract", page="acceptance", action=Action.INSPECT)


def of_contract(contract: Contract, runs: Collection, limits: Mapping[str, str] | None = None) -> list[Result]:
    """Return a result for each line, behind that of the nodes. limits: check -> how small a fault it found."""
    lines = {NODES: Line(says=f"the nodes {contract.nodes}"), **contract.lines}
    return [_Evidence(contract, line, runs).result(name, limits or {}) for name, line in lines.items()]


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
    asked: bool = False

    def result(self, name: str, limits: Mapping[str, str]) -> Result:
        line = self.line
        asks = {"checks": self._of_checks, "statements": self._of_statements, "fact": self._of_fact}
        look = self._of_nodes if name == NODES else next((asks[key] for key in asks if getattr(line, key)), None)
        seen = look() if look is not None else f"bringup cannot show it; {line.shown_by or 'nothing is named'}"
        state, asking = self._state(), dict.fromkeys([*line.gates, (line.fact or "").partition("@")[0]])
        why = first_few(list(dict.fromkeys([*self.against, *self.gaps])), 3) or None
        least, by, waiver = [limits[gate] for gate in asking if gate in limits], list(self.by), line.exception
        return Result(
            line=name, says=line.says, state=state, seen=seen, why=why, limits=least, runs=by, exception=waiver
        )

    def _state(self) -> State:
        if self.against or not self.asked:
            return State.REFUTED if self.against else State.NOT_ASKED
        if elsewhere := [node for node in self.contract.node_names if node not in self.nodes]:
            self.gaps.append(f"not on {listed(elsewhere)}")
        return State.NOT_PROVEN if self.gaps else State.PROVEN

    def _takes(self, run: Judged, subject: str) -> bool:
        """Take what a run says of a subject, but of nodes that were not sold."""
        scale = subjects.nodes_of_scale(subject)
        is_of_run = subject == subjects.JOB or scale is not None
        nodes = {*(run.run.nodes[:scale] if is_of_run else subjects.nodes_of(subject))} & {*self.contract.node_names}
        if nodes:
            name, self.asked = f"{run.run.phase} {run.run.name.removeprefix(f'{run.run.phase}-')}", True
            self.nodes |= nodes
            self.by[name] = None
            if (objection := run.objection) is not None:
                self.gaps.append(f"the evidence of {name} does not count: {objection}")
        return bool(nodes)

    def _weigh(self, verdict: Verdict, subject: str) -> None:
        if verdict.outcome is not Outcome.PASS:
            refutes = verdict.outcome in (Outcome.FAIL, Outcome.WARN)
            (self.against if refutes else self.gaps).append(f"{subject}: {sentence(verdict)}")

    def _of_nodes(self) -> str:
        """Ask whether each node that was sold is in Slurm's table and took part."""
        names, known = self.contract.node_names, set[str]()
        for run in self.runs.judged:
            self._takes(run, subjects.JOB)
            known.update(seen.subject for seen in run.seen.of(_IN_SLURM))
        if absent := [node for node in names if node not in known] if known else []:
            self.against.append(f"Slurm knows no {listed(absent)}")
        return f"{len(self.nodes)} of {len(names)} took part"

    def _of_checks(self) -> str:
        counts = dict.fromkeys(self.line.gates, 0)
        for run in self.runs.judged:
            here = [verdict for verdict in run.verdicts.verdicts if verdict.gate in counts]
            for verdict in (each for each in here if self._takes(run, each.subject)):
                counts[verdict.gate] += 1
                self._weigh(verdict, f"{title(verdict.gate)} [{verdict.subject}]")
            self.gaps += _placeholders(run, {verdict.gate for verdict in here})
        excluded = {entry.gate: entry.reason for run in self.runs.judged for entry in run.verdicts.not_applicable}
        for gate in (gate for gate, count in counts.items() if not count):
            self.gaps.append(f"not asked: {title(gate)} ({excluded.get(gate, 'no run asked it')})")
        return many(sum(counts.values()), "verdict")

    def _of_statements(self) -> str:
        statements = self.line.statements
        claims = [claim for answer in self.runs.answers for claim in answer.claims if claim.claim in statements]
        gates = {*self.line.gates, *(gate for statement in statements for gate in bearing_on(statement))}
        if any(claim.mark is not Mark.NOT_ASKED for claim in claims):
            self.asked = True
            for run in self.runs.judged:
                if any(verdict.gate in gates for verdict in run.verdicts.verdicts):
                    self._takes(run, subjects.JOB)
        on_all = (claim.nodes for claim in claims if claim.claim not in _OF_FEWER)
        self.nodes = set(self.contract.node_names).intersection(*on_all)
        for claim in (claim for claim in claims if claim.mark not in (Mark.PASS, Mark.WARN)):
            why = f"{claim.says}: {claim.why}" if len(claims) > 1 else claim.why or claim.mark.word
            (self.against if claim.mark is Mark.FAIL else self.gaps).append(why)
        return many(sum(claim.verdicts for claim in claims), "verdict")

    def _of_fact(self) -> str:
        line, fact, verdicts = self.line, str(self.line.fact), list[Verdict]()
        # all runs together say how rare a fault is
        soaked = called(SOAKED)(self.runs.judged) if fact.startswith(_OF_SOAK) else []
        for run in (run for run in self.runs.judged if line.phase in (None, run.run.phase)):
            of_fact = _chosen(fact, Seen(soaked) if soaked else run.seen)
            if chosen := [seen for seen in of_fact if self._takes(run, seen.subject)]:
                asked = [verdict.gate for verdict in run.verdicts.verdicts] if soaked else [fact]
                is_of_devices = any("/" in seen.subject for seen in chosen) or bool(_OF_DEVICES.search(fact))
                self.gaps += [*_placeholders(run, asked, is_of_devices), *self._silent(fact, run, chosen)]
            verdicts += [_compared(line, seen) for seen in (_lists(chosen) if line.on_nodes else chosen)]
        for verdict in verdicts:
            self._weigh(verdict, verdict.subject)
        number = number_of(verdicts)
        return "nothing" if number is None else in_words(number)

    def _silent(self, fact: str, run: Judged, chosen: Iterable[Observation]) -> list[str]:
        """Say where fewer devices answered than were sold or planned (GPUs), than are there (ports), or elsewhere."""
        devices = dict.fromkeys(seen.subject for seen in chosen if "/" in seen.subject)
        answered = Counter(device.partition("/")[0] for device in devices)
        gpus = (self.contract.gpus_per_node or run.run.gpus_per_node) if ".gpu" in fact else 0
        most, ports = max([gpus, *answered.values()]), numbers(run.seen.of(_PORTS) if ".rdma." in fact else [])
        there = {node: max(most, int(ports.get(node, 0))) for node in answered}
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
    of_nodes = grouped((seen.node, seen) for seen in chosen if seen.value is not None)
    values = {node: ", ".join(sorted(str(seen.value) for seen in several)) for node, several in of_nodes.items()}
    return [of[0].model_copy(update={"subject": node, "value": values[node]}) for node, of in of_nodes.items()]


def _compared(line: Line, seen: Observation) -> Verdict:
    """Compare the fact with what it has to be; on_nodes: each node's own values are equal."""
    fact, _, at = seen.quantity.partition("@")
    rule = next((rule for rule in RULES if getattr(line, rule) is not None), "equals")
    limit = getattr(line, rule)
    severity = Outcome.INCOMPLETE if fact.startswith(_OF_SOAK) else Outcome.FAIL  # too few hours refute nothing
    asks = {"phases": (), "per": "job", "proves": line.says, "guide": _GUIDE, "severity": severity}
    asks |= {"id": fact, "unit": line.unit or seen.unit, "rule": rule, "expect": Fixed(limit)}
    if line.on_nodes is not None:
        limit = ", ".join(sorted(line.on_nodes.get(seen.subject, ()))) or None
    return Requirement(Gate.model_validate(asks), limit, at or None).compared(seen)


def _placeholders(run: Judged, gates: Iterable[str], is_of_devices: bool = False) -> list[str]:
    names = not_real(run, gates)
    if (names or is_of_devices) and stand_ins.are_in(run.observations):
        return ["the GPUs are simulated: their UUIDs say so"]
    return [f"no {' or '.join(names)} was seen at work"] if names else []
