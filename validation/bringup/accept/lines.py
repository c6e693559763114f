"""What the runs show of each line of a contract: proven, refuted, not proven, or not asked.

The nodes of the contract are the yardstick: a line that held on fewer of them is not proven. All runs that are named
count: a line that failed in one of them is refuted, also if it held in another one. A placeholder proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from bringup.accept.contract import Contract, Line
from bringup.accept.records import Result, State
from bringup.kernel.answers import not_real, title
from bringup.kernel.errors import RuleError
from bringup.kernel.facts.names import first_few, listed
from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.judge import Judged
from bringup.kernel.plan import rules, stand_ins, subjects
from bringup.kernel.plan.catalogue import bearing_on, proving
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.expectation import size_bytes
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Mark, Observation, Outcome
from bringup.registry import SOAKED, called
from bringup.report.collection import Collection
from bringup.report.text import many, sentence

NODES = "nodes"
SIMULATED = "the GPUs are simulated: their UUIDs say so"
# statements of phases that take fewer nodes than there are: one node speaks for all
_OF_FEWER = {claim.id for claim in CLAIMS if any(PHASES[stem].max_nodes is not None for stem in claim.phases)}
_OF_DEVICES = re.compile(r"\.(gpu|rdma|topology)\b")
_OF_SOAK = "soak."  # GPU, link, …: hours for one fault (docs/soak.md)
_IN_SLURM = "slurm.node.state"  # Slurm's table of nodes names all that the cluster has


@dataclass
class _Evidence:
    """What speaks for a line, and against it; on which nodes, by which runs."""

    nodes: set[str] = field(default_factory=set)
    runs: dict[str, None] = field(default_factory=dict)
    against: list[str] = field(default_factory=list)
    gaps: list[str] = field(default_factory=list)  # why it is not proven, although nothing speaks against it
    seen: str = ""  # the number

    def took(self, run: Judged, subject: str) -> None:
        self.nodes.update(_nodes_of(subject, run))
        self.by(run)

    def by(self, run: Judged) -> None:
        name = f"{run.run.phase} {run.run.name.removeprefix(f'{run.run.phase}-')}"
        self.runs[name] = None
        if (objection := run.objection) is not None:
            self.gaps.append(f"the evidence of {name} does not count: {objection}")


def of_contract(contract: Contract, runs: Collection) -> list[Result]:
    """Return a result for each line, behind that of the nodes."""
    results = [_nodes(contract, runs)]
    for name, line in contract.lines.items():
        if line.checks:
            made = _checks(line, contract, runs)
        elif line.statements:
            made = _statements(line, contract, runs)
        elif line.fact is not None and line.fact.startswith(_OF_SOAK):
            made = _soaked(line, contract, runs)
        elif line.fact is not None:
            made = _fact(line, contract, runs)
        else:
            made = (State.NOT_ASKED, _Evidence(seen=f"bringup cannot show it; {line.shown_by or 'nothing is named'}"))
        results.append(_result(contract, name, line.says, *made))
    return results


def _result(contract: Contract, name: str, says: str, state: State, evidence: _Evidence) -> Result:
    waiver = contract.waiver(name)
    return Result(
        line=name,
        says=says,
        state=state,
        seen=evidence.seen,
        why=first_few(list(dict.fromkeys([*evidence.against, *evidence.gaps])), 3) or None,
        runs=list(evidence.runs),
        accepted_by=None if waiver is None else waiver.who,
        accepted_why=None if waiver is None else waiver.why,
    )


def _nodes(contract: Contract, runs: Collection) -> Result:
    """Judge whether each node that was sold is in Slurm's table and took part."""
    evidence, names = _Evidence(), contract.node_names
    of_slurm = {seen.subject for run in runs.judged for seen in run.observations if seen.quantity == _IN_SLURM}
    for run in runs.judged:
        for node in run.run.nodes:
            if node in names:
                evidence.took(run, node)
    if absent := [node for node in names if node not in of_slurm] if of_slurm else []:
        evidence.against.append(f"Slurm knows no {listed(absent)}")
    evidence.seen = f"{len(evidence.nodes)} of {len(names)} took part"
    state = _state(evidence, contract, asked=bool(evidence.runs))
    return _result(contract, NODES, f"the nodes {contract.nodes}", state, evidence)


def _checks(line: Line, contract: Contract, runs: Collection) -> tuple[State, _Evidence]:
    evidence, judged_gates, count = _Evidence(), set[str](), 0
    for run in runs.judged:
        of_line = [verdict for verdict in run.verdicts.verdicts if verdict.gate in line.gates]
        for verdict in (each for each in of_line if _is_about(each.subject, run, contract)):
            evidence.took(run, verdict.subject)
            judged_gates.add(verdict.gate)
            count += 1
            shown = f"{title(verdict.gate)} [{verdict.subject}]: {sentence(verdict)}"
            if verdict.outcome in (Outcome.FAIL, Outcome.WARN):
                evidence.against.append(shown)
            elif verdict.outcome is not Outcome.PASS:
                evidence.gaps.append(shown)
        evidence.gaps += _placeholders(run, {verdict.gate for verdict in of_line})
    excluded = {entry.gate: entry.reason for run in runs.judged for entry in run.verdicts.not_applicable}
    for gate in (each for each in line.gates if each not in judged_gates):
        evidence.gaps.append(f"not asked: {title(gate)} ({excluded.get(gate, 'no run asked it')})")
    evidence.seen = many(count, "verdict")
    return _state(evidence, contract, asked=bool(judged_gates)), evidence


def _statements(line: Line, contract: Contract, runs: Collection) -> tuple[State, _Evidence]:
    evidence = _Evidence(nodes=set(contract.node_names))
    claims = [claim for answer in runs.answers for claim in answer.claims if claim.claim in line.statements]
    for claim in claims:
        if claim.claim not in _OF_FEWER:
            evidence.nodes &= set(claim.nodes)
        if claim.mark not in (Mark.PASS, Mark.WARN):
            why = f"{claim.says}: {claim.why}" if len(claims) > 1 else claim.why or claim.mark.word
            (evidence.against if claim.mark is Mark.FAIL else evidence.gaps).append(why)
    asked = any(claim.mark is not Mark.NOT_ASKED for claim in claims)
    gates = {gate for id in line.statements for gate in (*proving(id), *bearing_on(id))}
    for run in runs.judged if asked else []:
        if any(verdict.gate in gates for verdict in run.verdicts.verdicts):
            evidence.by(run)
    evidence.seen = many(sum(claim.verdicts for claim in claims), "verdict")
    return _state(evidence, contract, asked=asked), evidence


def _fact(line: Line, contract: Contract, runs: Collection) -> tuple[State, _Evidence]:
    evidence, values = _Evidence(), list[Observation]()
    for run in runs.judged if line.phase is None else [run for run in runs.judged if run.run.phase == line.phase]:
        chosen = [seen for seen in _chosen(line, run) if _is_about(seen.subject, run, contract)]
        for seen in chosen:
            evidence.took(run, seen.subject)
            is_of_device = "/" in seen.subject or _OF_DEVICES.search(seen.quantity)
            if is_of_device and stand_ins.are_in(run.observations):
                evidence.gaps.append(SIMULATED)
            if seen.value is None:
                evidence.gaps.append(f"{seen.subject}: {seen.why or 'not known'}")
            elif line.unit is not None and seen.unit != line.unit:
                evidence.gaps.append(f"{seen.subject}: is in {seen.unit}, and the line says {line.unit}")
            else:
                values.append(seen)
        evidence.gaps += _placeholders(run, [line.fact or ""] if chosen else [])
        for node in run.run.nodes if chosen and line.devices else []:
            there = len({seen.subject for seen in chosen if seen.subject.startswith(f"{node}/")})
            if node in contract.node_names and there != line.devices:
                evidence.against.append(f"{node}: {there} of {line.devices} devices")
    evidence.against += _odd(line, values)
    evidence.seen = _in_words(line, values)
    return _state(evidence, contract, asked=bool(evidence.runs)), evidence


def _soaked(line: Line, contract: Contract, runs: Collection) -> tuple[State, _Evidence]:
    """Judge what all runs say together: how rare a kind of fault is. Too few hours refute nothing."""
    evidence, values = _Evidence(), [seen for seen in called(SOAKED)(runs.judged) if seen.quantity == line.fact]
    for run in runs.judged if values else []:
        evidence.took(run, subjects.JOB)
        evidence.gaps += _placeholders(run, [verdict.gate for verdict in run.verdicts.verdicts])
    evidence.gaps += _odd(line, values)
    evidence.seen = _in_words(line, values)
    return _state(evidence, contract, asked=bool(values)), evidence


def _chosen(line: Line, run: Judged) -> list[Observation]:
    """Return the fact at its size and on its scale; the largest and the widest, where the line names none."""
    sizes = {seen.quantity for seen in run.observations if seen.quantity.partition("@")[0] == line.fact}
    if line.at is not None:
        quantity = f"{line.fact}@{line.at}"
    elif line.fact in sizes or not sizes:
        quantity = line.fact or ""
    else:
        quantity = max(sizes, key=lambda name: size_bytes(name.partition("@")[2]) or 0)
    of_fact = [seen for seen in run.observations if seen.quantity == quantity]
    scales = {seen.subject: subjects.nodes_of_scale(seen.subject) for seen in of_fact}
    widest = max((nodes for nodes in scales.values() if nodes is not None), default=None)
    return [seen for seen in of_fact if widest is None or scales[seen.subject] == widest]


def _odd(line: Line, values: Sequence[Observation]) -> list[str]:
    """Say which values are otherwise than the contract says."""
    odd = []
    for node, named in (line.on_nodes or {}).items():
        there = sorted(str(seen.value) for seen in values if node in subjects.nodes_of(seen.subject))
        if there and there != sorted(named):
            odd.append(f"{node} has {', '.join(there)}, and not {', '.join(sorted(named))}")
    for seen in values if line.on_nodes is None else []:
        assert seen.value is not None
        try:
            held = rules.holds(line.rule, seen.value, line.limit)
        except RuleError as error:
            return [str(error)]
        if not held:
            odd.append(f"{seen.subject} has {rules.value_in_words(seen.value, seen.unit)}")
    return odd


def _in_words(line: Line, values: Sequence[Observation]) -> str:
    """Show the number that is nearest to its limit, or the different values."""
    if line.rule in ("at_least", "at_most") and (numbers := [seen for seen in values if is_number(seen.value)]):
        worst = (min if line.rule == "at_least" else max)(numbers, key=lambda seen: float(str(seen.value)))
        return f"{rules.value_in_words(worst.value or 0, worst.unit)} [{worst.subject}]"
    different = [rules.value_in_words(seen.value, seen.unit) for seen in values if seen.value is not None]
    return listed(different) if different else "nothing"


def _placeholders(run: Judged, gates: Iterable[str]) -> list[str]:
    names = not_real(run, gates)
    if names and stand_ins.are_in(run.observations):
        return [SIMULATED]
    return [f"no {' or '.join(names)} was seen at work"] if names else []


def _is_about(subject: str, run: Judged, contract: Contract) -> bool:
    return not set(contract.node_names).isdisjoint(_nodes_of(subject, run))


def _nodes_of(subject: str, run: Judged) -> list[str]:
    """Name the nodes that a subject of this run speaks of: all, for its job and the scale of all."""
    if (number := subjects.nodes_of_scale(subject)) is not None:
        return run.run.nodes[:number]
    return run.run.nodes if subject == subjects.JOB else subjects.nodes_of(subject)


def _state(evidence: _Evidence, contract: Contract, *, asked: bool) -> State:
    if evidence.against:
        return State.REFUTED
    if not asked:
        return State.NOT_ASKED
    if elsewhere := [node for node in contract.node_names if node not in evidence.nodes]:
        evidence.gaps.append(f"not on {listed(elsewhere)}")
    return State.NOT_PROVEN if evidence.gaps else State.PROVEN
