"""What the runs show of each line of a contract: proven, refuted, not proven, or not asked.

The nodes of the contract are the yardstick: a line that held on fewer of them is not proven. All runs that are named
count: a line that failed in one of them is refuted, also if it held in another one. A placeholder proves nothing.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bringup.accept.contract import NODES, RULES, Contract, Line
from bringup.accept.records import Result, State
from bringup.kernel.answers import in_words, not_real, number_of, title
from bringup.kernel.facts.names import first_few, listed
from bringup.kernel.facts.parser_result import Seen, numbers
from bringup.kernel.judge import Judged
from bringup.kernel.judge.verdict import Requirement
from bringup.kernel.plan import catalogue, phases, stand_ins, subjects
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.expectation import size_bytes
from bringup.kernel.plan.gate import Fixed, Gate, Guide
from bringup.kernel.records import Action, Mark, Observation, Outcome, Verdict, grouped
from bringup.registry import SOAKED, called
from bringup.report.collection import Collection
from bringup.report.text import many, sentence

_OF_FEWER = {claim.id for claim in CLAIMS if any(phases.PHASES[stem].max_nodes is not None for stem in claim.phases)}
_OF_DEVICES = (".gpu.", ".rdma.", ".topology")  # in the name of a fact
_PORTS = "discovery.rdma.ports"
_GUIDE = Guide(title="a line of a contract", page="acceptance", action=Action.INSPECT)


def of_contract(contract: Contract, runs: Collection, limits: Mapping[str, object] | None = None) -> list[Result]:
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
    by: dict[int, Judged] = field(default_factory=dict)  # each run once, by its id()
    verdicts: list[Verdict] = field(default_factory=list)
    against: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)  # why it is not proven, although nothing speaks against it
    asked: bool = False  # although none of the runs speaks of it

    def result(self, name: str, limits: Mapping[str, object]) -> Result:
        line, waiver = self.line, self.line.exception
        asks = {"checks": self._of_checks, "statements": self._of_statements, "fact": self._of_fact}
        look = self._of_nodes if name == NODES else next((asks[key] for key in asks if getattr(line, key)), None)
        seen = look() if look is not None else f"bringup cannot show it; {line.shown_by or 'nothing is named'}"
        by = [(f"{run.folder.parent.name}/{run.folder.name}", run.objection) for run in self.by.values()]
        self.gaps += [f"the evidence of {folder} does not count: {why}" for folder, why in by if why]
        elsewhere, state = [node for node in self.contract.node_names if node not in self.nodes], State.NOT_ASKED
        if self.against:
            state = State.REFUTED
        elif self.by or self.asked:
            self.gaps += [f"not on {listed(elsewhere)}"] * bool(elsewhere)
            state = State.NOT_PROVEN if self.gaps else State.PROVEN
        why = first_few(list(dict.fromkeys([*self.against, *self.gaps])), 3) or None
        asking = dict.fromkeys([*line.gates, (line.fact or "").partition("@")[0]])
        runs, least = [folder for folder, _ in by], [str(limits[gate]) for gate in asking if gate in limits]
        return Result(
            line=name, says=line.says, state=state, seen=seen, why=why, limits=least, runs=runs, exception=waiver
        )

    def _takes(self, run: Judged, subject: str) -> bool:
        """Take what a run says of a subject, but of nodes that were not sold."""
        scale, sold = subjects.nodes_of_scale(subject), self.contract.node_names
        is_of_run = subject == subjects.JOB or scale is not None
        nodes = [node for node in (run.run.nodes[:scale] if is_of_run else subjects.nodes_of(subject)) if node in sold]
        if nodes:
            self.nodes.update(nodes)
            self.by[id(run)] = run
        return bool(nodes)

    def _weigh(self, run: Judged, verdicts: Iterable[Verdict], soaked: Iterable[Verdict] = ()) -> None:
        """Take what a run says of nodes that were sold. soaked: verdicts behind hours; too few hours refute nothing."""
        here = [verdict for verdict in verdicts if self._takes(run, verdict.subject)]
        for verdict in (verdict for verdict in here if verdict.outcome is not Outcome.PASS):
            where = verdict.subject if self.line.fact else f"{title(verdict.gate)} [{verdict.subject}]"
            refutes = verdict.outcome in (Outcome.FAIL, Outcome.WARN) and not soaked
            (self.against if refutes else self.gaps).append(f"{where}: {sentence(verdict)}")
        names = not_real(run, {verdict.gate for verdict in soaked or here}) if here else []
        of_devices = [each for each in here if each.device or any(part in each.gate for part in _OF_DEVICES)]
        if (names or of_devices) and stand_ins.are_in(run.observations):
            self.gaps.append("the GPUs are simulated: their UUIDs say so")
        elif names:
            self.gaps.append(f"no {' or '.join(names)} was seen at work")
        self.verdicts += here

    def _of_nodes(self) -> str:
        """Ask whether each node that was sold took part, and is in Slurm's table, which names all of the cluster."""
        for run in self.runs.judged:
            self._takes(run, subjects.JOB)
        known = {seen.subject for run in self.runs.judged for seen in run.seen.of("slurm.node.state")}
        absent = [node for node in self.contract.node_names if known and node not in known]
        self.against += [f"Slurm knows no {listed(absent)}"] * bool(absent)
        return f"{len(self.nodes)} of {len(self.contract.node_names)} took part"

    def _of_checks(self) -> str:
        gates = dict.fromkeys(self.line.gates, "no run asked it")
        for run in self.runs.judged:
            self._weigh(run, [verdict for verdict in run.verdicts.verdicts if verdict.gate in gates])
            gates |= {entry.gate: entry.reason for entry in run.verdicts.not_applicable if entry.gate in gates}
        asked = {verdict.gate for verdict in self.verdicts}
        self.gaps += [f"not asked: {title(gate)} ({why})" for gate, why in gates.items() if gate not in asked]
        return many(len(self.verdicts), "verdict")

    def _of_statements(self) -> str:
        statements = self.line.statements
        claims = [claim for answer in self.runs.answers for claim in answer.claims if claim.claim in statements]
        gates = {*self.line.gates, *(gate for statement in statements for gate in catalogue.bearing_on(statement))}
        self.asked = any(claim.mark is not Mark.NOT_ASKED for claim in claims)
        for run in self.runs.judged if self.asked else ():
            if any(verdict.gate in gates for verdict in run.verdicts.verdicts):
                self._takes(run, subjects.JOB)
        on_all = (claim.nodes for claim in claims if claim.claim not in _OF_FEWER)  # there one node speaks for all
        self.nodes = set(self.contract.node_names).intersection(*on_all)
        for claim in (claim for claim in claims if claim.mark not in (Mark.PASS, Mark.WARN)):
            why = f"{claim.says}: {claim.why}" if len(claims) > 1 else claim.why or claim.mark.word
            (self.against if claim.mark is Mark.FAIL else self.gaps).append(why)
        return many(sum(claim.verdicts for claim in claims), "verdict")

    def _of_fact(self) -> str:
        line, fact = self.line, str(self.line.fact)
        soaked = called(SOAKED)(self.runs.judged) if fact.startswith("soak.") else []  # of all runs together
        for run in (run for run in self.runs.judged if line.phase in (None, run.run.phase)):
            seen = _chosen(fact, Seen(soaked) if soaked else run.seen)
            made = [_compared(line, each) for each in (_lists(seen) if line.on_nodes else seen)]
            self._weigh(run, made, run.verdicts.verdicts if soaked else ())
            self.gaps += self._silent(fact, run, seen)
        number = number_of(self.verdicts)
        return "nothing" if number is None else in_words(number)

    def _silent(self, fact: str, run: Judged, seen: Iterable[Observation]) -> list[str]:
        """Say where fewer devices answered than were sold or planned (GPUs), than are there (ports), or elsewhere."""
        of_nodes = grouped((each.node, each.device) for each in seen if each.device)
        answered = {node: len({*of}) for node, of in of_nodes.items() if node in self.contract.node_names}
        gpus = (self.contract.gpus_per_node or run.run.gpus_per_node) if ".gpu" in fact else 0
        most, ports = max([gpus, *answered.values()]), numbers(run.seen.of(_PORTS) if ".rdma." in fact else [])
        there = {node: max(most, int(ports.get(node, 0))) for node in answered}
        return [f"{node}: {count} of {there[node]} answered" for node, count in answered.items() if count < there[node]]


def _chosen(fact: str, seen: Seen) -> list[Observation]:
    """Return the fact at its size and on its scale; the largest and the widest, where the line names none."""
    largest = max(seen.starting_with(f"{fact}@"), key=lambda at: size_bytes(at.partition("@")[2]) or 0, default=fact)
    of_fact = seen.of(fact) or seen.of(largest)
    widest = max((subjects.nodes_of_scale(each.subject) or 0 for each in of_fact), default=0)
    return [each for each in of_fact if widest in (0, subjects.nodes_of_scale(each.subject))]


def _lists(chosen: Iterable[Observation]) -> list[Observation]:
    """Make one text of each node's values, in any order: serial numbers."""
    of_nodes = grouped((seen.node, seen) for seen in chosen if seen.value is not None)
    values = {node: ", ".join(sorted(str(seen.value) for seen in several)) for node, several in of_nodes.items()}
    return [of[0].model_copy(update={"subject": node, "value": values[node]}) for node, of in of_nodes.items()]


def _compared(line: Line, seen: Observation) -> Verdict:
    """Compare the fact with what it has to be; on_nodes: each node's own values are equal."""
    fact, _, at = seen.quantity.partition("@")
    rule = next(rule for rule in RULES if getattr(line, rule) is not None)
    limit = getattr(line, rule)
    if line.on_nodes is not None:
        rule, limit = "equals", ", ".join(sorted(line.on_nodes.get(seen.subject, ()))) or None
    asks = {"phases": (), "per": "job", "proves": line.says, "guide": _GUIDE, "expect": Fixed(limit)}
    asks |= {"id": fact, "unit": line.unit or seen.unit, "rule": rule}
    return Requirement(Gate.model_validate(asks), limit, at or None).compared(seen)
