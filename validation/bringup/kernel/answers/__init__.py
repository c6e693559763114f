"""The six questions, answered from judged runs: a statement (`Claim`) says what was asked, where, and on what.

A question passes when all of its statements do. A statement without a judged gate is not asked. Evidence from a
placeholder does not prove it. Hardware counts as a placeholder unless it was observed to be real.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from bringup.kernel.characters import many
from bringup.kernel.facts.names import listed
from bringup.kernel.facts.parser_result import Seen
from bringup.kernel.judge import Judged
from bringup.kernel.plan import stand_ins, subjects, transports
from bringup.kernel.plan.catalogue import GATES, bearing_on, of_phase, proving
from bringup.kernel.plan.claims import CLAIMS, QUESTIONS, REAL_NAMES, Claim, Real
from bringup.kernel.plan.expectation import SPEEDS
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.rules import value_in_words
from bringup.kernel.records import Answer, ClaimAnswer, Mark, Measured, Outcome, Verdict, grouped, known
from bringup.registry import DRILLS_ANSWER, called

NOT_RUN = "no phase that asks it was run"
NO_FAULT = "no fault was made on purpose: bringup drill --anywhere"
NAMED = 3  # checks of a sentence
_Names = Sequence[str]  # of phases, or of nodes


def answers(
    judged: Sequence[Judged], not_run: _Names = (), drills: Sequence[object] = (), left_out: _Names = ()
) -> list[Answer]:
    """Return one answer per question.

    not_run: phases that were planned and did not run; the claims that they would have tested are incomplete.
    left_out: nodes that failed and were left out by later phases; no claim is made for them there.
    """
    # one simulated GPU: nothing of this report is from real hardware
    is_simulated = any(stand_ins.are_in(entry.observations) for entry in judged)
    runs = [_RunEvidence(entry, frozenset() if is_simulated else _real(entry), is_simulated) for entry in judged]
    asked = [claim for claim in CLAIMS if not claim.optional or any(run.judged.own for run in runs)]
    of_questions = grouped((claim.question, _claim(claim, runs, not_run, drills, left_out)) for claim in asked)
    return [_question(number, of_questions[number]) for number in QUESTIONS]


# --- what is real

_REAL = known("real", dict[Real, dict[str, str]])


def _real(judged: Judged) -> frozenset[Real]:
    return frozenset(kind for kind in REAL_NAMES if _is_real(kind, judged.seen))


def _is_real(kind: Real, observed: Seen) -> bool:
    if kind == "fabric":  # all bytes between hosts were observed to use a known transport other than TCP
        between = [seen.value for name in transports.GATES for seen in observed.of(name)]
        return bool(between) and all(value is not None and transports.is_fabric(str(value)) for value in between)
    for name, right in _REAL[kind].items():
        values = [str(seen.value) for seen in observed.of(name) if seen.value is not None]
        if values and all(re.fullmatch(right, value, re.DOTALL) for value in values):
            return True
    return False


def not_real(judged: Judged, gates: Iterable[str]) -> list[str]:
    """Return what the statements of these gates need to be real, and no run showed to be: GPU, NCCL, fabric."""
    claims = {claim for gate in gates if gate in GATES for claim in GATES[gate].claims}
    needed = {kind for claim in CLAIMS if claim.id in claims for kind in claim.real}
    real = frozenset[Real]() if stand_ins.are_in(judged.observations) else _real(judged)
    return [name for kind, name in REAL_NAMES.items() if kind in needed - real]


def stand_ins_of(claims: Iterable[ClaimAnswer]) -> str:
    """Say why these statements are not proven; empty where they are."""
    claims = list(claims)
    if any(claim.is_simulated for claim in claims):
        return "the GPUs are simulated: their UUIDs say so"
    missing = {name for claim in claims for name in claim.not_real}
    names = [name for name in REAL_NAMES.values() if name in missing]
    if claims and not names:  # drills
        return "; ".join(dict.fromkeys(claim.why or "" for claim in claims))
    return f"no {', '.join(names[:-1])}{' or ' if names[:-1] else ''}{names[-1]} was seen at work" if names else ""


@dataclass(frozen=True)
class _RunEvidence:
    judged: Judged
    real: frozenset[Real]
    is_simulated: bool

    @cached_property
    def by_gate(self) -> dict[str, list[_Evidence]]:
        """Return its verdicts, in their order."""
        return grouped((verdict.gate, _Evidence(self, verdict)) for verdict in self.judged.verdicts.verdicts)


# --- claims


class _Evidence(NamedTuple):
    """A verdict that bears on a claim, and the run it is from."""

    run: _RunEvidence
    verdict: Verdict


_Runs = Sequence[_RunEvidence]
_ByGate = Mapping[str, Sequence[_Evidence]]


@dataclass(frozen=True)
class _Claimed:
    """causes: the gates whose outcome is the claim's answer; empty where it has another reason."""

    answer: ClaimAnswer
    causes: _ByGate = field(default_factory=dict)


def _claim(claim: Claim, runs: _Runs, not_run: _Names, drills: Sequence[object], left_out: _Names) -> _Claimed:
    of_runs = [(run, by_gate) for run in runs if (by_gate := _evidence(claim, run))]
    of_sites = {id: gate for run in runs for id, gate in run.judged.own.items()}
    gates = proving(claim.id, of_sites)
    asking = [run for run, by_gate in of_runs if any(gate in gates for gate in by_gate)]
    bearing = [evidence for _, by_gate in of_runs for several in by_gate.values() for evidence in several]
    others = [evidence for evidence in bearing if evidence.verdict.outcome is not Outcome.PASS]
    of_outcome = {outcome: _by_gate(others, outcome) for outcome in Outcome}
    phases_not_run = [stem for stem in not_run if _would_ask(claim, stem)]
    taking_part = [run for run, _ in of_runs]
    nodes = list(dict.fromkeys(node for run in taking_part for node in run.judged.run.nodes))
    shown = (
        number_of([each.verdict for _, by_gate in of_runs for each in by_gate.get(gate, ())]) for gate in claim.shows
    )
    plain = ClaimAnswer(
        claim=claim.id,
        says=claim.says,
        mark=Mark.PASS,
        numbers=[number for number in shown if number is not None],
        verdicts=len(bearing),
        nodes=nodes,
        gpus_per_node=max((run.judged.run.gpus_per_node for run in taking_part), default=0),
        why=None,
    )

    def answer(mark: Mark, why: str | None = None, causes: _ByGate | None = None) -> _Claimed:
        words = _named(causes, list(causes)[:NAMED]) if causes else why
        return _Claimed(plain.model_copy(update={"mark": mark, "why": words}), causes or {})

    if claim.drills and not drills:
        return answer(Mark.NOT_ASKED, NO_FAULT)
    if claim.drills:
        beside = [run.judged.run for run in runs]
        return answer(*called(DRILLS_ANSWER)(drills, beside, is_real=any(run.real for run in runs)))
    if of_outcome[Outcome.FAIL]:
        return answer(Mark.FAIL, causes=of_outcome[Outcome.FAIL])
    if phases_not_run:
        return answer(Mark.INCOMPLETE, f"not run: {', '.join(phases_not_run)}")
    if not asking:
        return answer(Mark.NOT_ASKED, _why_not_asked(claim, runs))
    if of_outcome[Outcome.INCOMPLETE]:
        return answer(Mark.INCOMPLETE, causes=of_outcome[Outcome.INCOMPLETE])
    lacking = [run for run in asking if set(claim.real) - run.real]
    not_real = dict.fromkeys(REAL_NAMES[kind] for run in lacking for kind in claim.real if kind not in run.real)
    simulated, not_here = any(run.is_simulated for run in lacking), [node for node in left_out if node not in nodes]
    plain = plain.model_copy(update={"not_real": list(not_real), "is_simulated": simulated, "not_on": not_here})
    not_on = [f"not on {', '.join(not_here)} (excluded)"] if not_here else []
    if lacking:
        return answer(Mark.NOT_PROVEN, "; ".join([stand_ins_of([plain]), *not_on]))
    judged_gates = {gate for _, by_gate in of_runs for gate in by_gate}
    unasked = [gate for gate in gates if gate not in judged_gates | _excluded(runs).keys()]
    unasked += [stem for stem in claim.phases if stem not in {run.judged.run.phase for run in runs}]
    of_unasked = dict.fromkeys(GATES[name].proves if name in GATES else title(name) for name in unasked)
    open_ends = [f"not asked: {'; '.join(of_unasked)}"] * bool(unasked) + not_on
    own, without_limit = _own_numbers(of_runs), of_outcome[Outcome.NO_LIMIT]
    if open_ends or without_limit or own:
        plain = plain.model_copy(update={"is_without_limit": not open_ends})
        no_limit = [f"measured, and no limit is known: {_named(without_limit, list(without_limit)[:NAMED])}"]
        return answer(Mark.PARTLY, "; ".join([*open_ends, *no_limit[: len(without_limit)], *own]))
    warned = of_outcome[Outcome.WARN]
    return answer(Mark.WARN if warned else Mark.PASS, causes=warned)


def _own_numbers(of_runs: Sequence[tuple[_RunEvidence, _ByGate]]) -> list[str]:
    """Why speeds that passed say `as before` and not `as bought`: each of their limits was measured on this cluster."""
    limits = [run.judged.profile.expect.get(gate) for run, by_gate in of_runs for gate in by_gate]
    speeds = [limit for limit in limits if limit is not None and limit.unit in SPEEDS]
    if not speeds or not all(limit.is_own for limit in speeds):
        return []
    return [f"compared with this cluster's own numbers alone ({speeds[0].source.partition(':')[0]})"]


def _evidence(claim: Claim, run: _RunEvidence) -> _ByGate:
    phase = run.judged.run.phase
    elsewhere = bool(claim.phases) and PHASES[phase].is_training and phase not in claim.phases
    if elsewhere or len(run.judged.run.nodes) < claim.least_nodes:
        return {}
    gates = {*proving(claim.id, run.judged.own), *bearing_on(claim.id)}
    bearing = {gate: several for gate, several in run.by_gate.items() if gate in gates}
    if claim.least_nodes == 1 and claim.most_nodes is None:
        return bearing
    return grouped(
        (gate, each) for gate, of in bearing.items() for each in of if _in_scope(claim, each.verdict.subject)
    )


def _in_scope(claim: Claim, subject: str) -> bool:
    nodes = subjects.nodes_of_scale(subject)
    return nodes is None or claim.least_nodes <= nodes <= (claim.most_nodes or nodes)


def _would_ask(claim: Claim, stem: str) -> bool:
    is_phase_of_claim = not claim.phases or stem in claim.phases
    return is_phase_of_claim and any(claim.id in gate.claims for gate in of_phase(stem))


def _excluded(runs: _Runs) -> dict[str, str]:
    """Return gates that were not applicable, and why."""
    return {entry.gate: entry.reason for run in runs for entry in run.judged.verdicts.not_applicable}


def _why_not_asked(claim: Claim, runs: _Runs) -> str:
    reasons, gates = _excluded(runs), proving(claim.id)
    if all(gate in reasons for gate in gates):
        return reasons[gates[0]]
    asking = [run for run in runs if _would_ask(claim, run.judged.run.phase)]
    widest = max((len(run.judged.run.nodes) for run in asking or runs), default=0)
    if widest < claim.least_nodes:
        return f"it needs {claim.least_nodes} nodes, {widest} took part"
    return NOT_RUN


def _by_gate(evidence: Iterable[_Evidence], outcome: Outcome) -> _ByGate:
    """Evidence with this outcome, in order."""
    return grouped((item.verdict.gate, item) for item in evidence if item.verdict.outcome is outcome)


def _named(by_gate: _ByGate, shown: Collection[str]) -> str:
    """Name what was looked at, as its guide is called, with the subjects in all runs: `RDMA ports [n2]; Transport
    [1-node, 2-nodes]; … and 3 more`. Gates of one guide and of the same subjects are one."""
    of_gates = {gate: [item.verdict.subject for item in by_gate[gate]] for gate in by_gate if gate in shown}
    by_subjects = grouped((listed(several), title(gate)) for gate, several in of_gates.items())
    named = [f"{', '.join(dict.fromkeys(titles))} [{subjects}]" for subjects, titles in by_subjects.items()]
    left_count = len(by_gate) - len(of_gates)
    return "; ".join([*named, *([f"and {left_count} more"] if left_count else [])])


def title(name: str) -> str:
    """Return what a gate's guide, or a phase, is called; a gate of a site's own is called by its id."""
    return GATES[name].guide.title if name in GATES else PHASES[name].title if name in PHASES else name


def number_of(verdicts: Sequence[Verdict]) -> Measured | None:
    """Return the value of one gate at the largest scale. Of several nodes, pairs or ranks: the worst one, closest to
    its limit."""
    values = [verdict for verdict in verdicts if verdict.value is not None]
    if not values:
        return None
    widest = max((subjects.nodes_of_scale(verdict.subject) or 0 for verdict in values), default=0)
    values = [verdict for verdict in values if (subjects.nodes_of_scale(verdict.subject) or 0) == widest]
    numbers = [(float(verdict.value), verdict) for verdict in values if isinstance(verdict.value, int | float)]
    worst_of = min if values[0].rule == "at_least" else max
    chosen = worst_of(numbers, key=lambda each: each[0])[1] if numbers else values[0]
    assert chosen.value is not None
    return Measured(
        name=chosen.gate.partition(".")[2].removesuffix(".busbw"),
        value=chosen.value,
        unit=chosen.unit,
        rule=chosen.rule,
        limit=chosen.limit,
        at=chosen.at,
        subject=chosen.subject,
    )


def in_words(number: Measured) -> str:
    """Write `all_reduce 392 GB/s at 8GiB on 16-nodes, floor 380`."""
    value = value_in_words(number.value, number.unit)
    at = f" at {number.at}" if number.at else ""
    where = f" on {number.subject}" if number.subject != subjects.JOB else ""
    sort = {"at_least": "floor", "at_most": "ceiling"}.get(number.rule)
    limit = f", {sort} {number.limit:g}" if sort and isinstance(number.limit, int | float) else ""
    limit = limit or (", no limit" if sort and number.limit is None else "")
    return f"{number.name} {value}{at}{where}{limit}"


# --- questions


def _question(number: int, claimed: Sequence[_Claimed]) -> Answer:
    claims = [claim.answer for claim in claimed]
    marks = {claim.mark for claim in claims}
    if Mark.NOT_ASKED in marks and len(marks) > 1:
        marks.add(Mark.PARTLY)
    mark = next(mark for mark in _WORST_FIRST if mark in marks)
    return Answer(
        question=number,
        mark=mark,
        line=_causes([claim for claim in claimed if claim.answer.mark is mark]) if mark in _BAD else _line(claims),
        reservations=_reservations(mark, claims),
        claims=list(claims),
    )


_WORST_FIRST = (Mark.FAIL, Mark.INCOMPLETE, Mark.NOT_PROVEN, Mark.PARTLY, Mark.WARN, Mark.PASS, Mark.NOT_ASKED)
_BAD = (Mark.FAIL, Mark.INCOMPLETE, Mark.WARN)


def _causes(claimed: Sequence[_Claimed]) -> str:
    """Name the gates that made an answer fail or stay open, each once however many claims it bears on."""
    by_cause = grouped((gate, item) for claim in claimed for gate, items in claim.causes.items() for item in items)
    shown = {gate for claim in claimed for gate in list(claim.causes)[:NAMED]}
    others = dict.fromkeys(claim.answer.why or "" for claim in claimed if not claim.causes)
    return "; ".join([*([_named(by_cause, shown)] if by_cause else []), *others])


def _line(claims: Sequence[ClaimAnswer]) -> str:
    """Numbers and scope of the answer."""
    asked_claims = [claim for claim in claims if claim.mark is not Mark.NOT_ASKED]
    if not asked_claims:
        return "; ".join(dict.fromkeys(claim.why or "" for claim in claims))
    nodes = {node for claim in asked_claims for node in claim.nodes}
    gpus = max(claim.gpus_per_node for claim in asked_claims)
    verdicts = sum(claim.verdicts for claim in asked_claims)
    counted = f"{verdicts} verdicts on {many(len(nodes), 'node')} x {many(gpus, 'GPU')}"
    # a quantity may be measured inside a node and between nodes: the wider scale comes last and is kept
    numbers = {number.name: in_words(number) for claim in asked_claims for number in claim.numbers}
    drilled = [claim.why for claim in asked_claims if claim.why and not claim.verdicts]
    return "; ".join([*numbers.values(), *drilled, counted])


def _reservations(mark: Mark, claims: Sequence[ClaimAnswer]) -> list[str]:
    """Limits of the answer: statements that are not proven, partly tested or not tested."""
    held = [claim for claim in claims if claim.mark is Mark.NOT_PROVEN and claim.verdicts]  # the line has drills
    not_on = dict.fromkeys(node for claim in held for node in claim.not_on)
    but = f"; not on {', '.join(not_on)} (excluded)" if not_on else ""
    reservations = [f"not proven: {stand_ins_of(held)}{but}"] if held else []
    partly = grouped((claim.why, claim.says) for claim in claims if claim.mark is Mark.PARTLY)
    reservations += [f"partly: {_several(says)} ({why})" for why, says in partly.items()]
    if mark is not Mark.NOT_ASKED:
        by_reason = grouped((claim.why, claim.says) for claim in claims if claim.mark is Mark.NOT_ASKED)
        if left := by_reason.pop(NOT_RUN, []):
            reservations.append(f"not asked: {many(len(left), 'statement')} of phases that were not run")
        reservations += [f"not asked: {_several(says)} ({why})" for why, says in by_reason.items()]
    return reservations


def _several(says: Sequence[str]) -> str:
    """Return the statement, or the first one and how many others. In a report of one phase, most share one reason."""
    return says[0] if len(says) == 1 else f"{says[0]}; and {many(len(says) - 1, 'more statement')}"
