"""Planned pairs + observations + profile -> verdicts. Pure: no Slurm, no GPU, no torch, no clock."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from bringup import results as runs
from bringup.checks import catalogue
from bringup.checks import planned as planning
from bringup.checks.reading import read_run
from bringup.errors import RuleError
from bringup.evidence.parsed import Parsed
from bringup.known_faults import signs
from bringup.plan import subjects
from bringup.plan.gate import Fixed, Fleet, FromProfile, Gate, Per, Requested
from bringup.plan.phases import PHASES
from bringup.plan.profile import Profile
from bringup.plan.rules import FEWEST_PEERS, UNSAID, Expected, holds, in_words, odd_ones
from bringup.records import Observation, Observations, Outcome, Run, Value, Verdict, Verdicts, worst

Seen = Mapping[tuple[str, str], list[Observation]]
Outcomes = Mapping[tuple[str, str], Outcome]
NOTHING = "nothing"


def judge_folder(folder: Path, profile: Profile | None = None) -> tuple[Observations, Verdicts]:
    """Read a run's folder and judge it, against its own copy of the profile unless another one is given."""
    run = runs.load(folder)
    profile = runs.load_profile(folder) if profile is None else profile
    parsed = read_run(folder, run)
    verdicts = judge(run, profile, parsed)
    if verdicts.outcome is not Outcome.PASS:
        verdicts = verdicts.model_copy(update={"signs": signs.in_run(folder, run)})
    return Observations(observations=parsed.observations, problems=parsed.problems), verdicts


def judge(run: Run, profile: Profile, parsed: Parsed) -> Verdicts:
    """One verdict per planned pair. A pair without evidence is incomplete; a plan without pairs is incomplete."""
    seen: dict[tuple[str, str], list[Observation]] = defaultdict(list)
    for one in parsed.observations:
        seen[one.quantity, one.subject].append(one)
    not_applicable = planning.excluded_here(run.phase, profile.not_applicable)
    excluded = {entry.gate for entry in not_applicable}
    # gates that are newer than the run are judged too, on the run's own nodes
    planned = planning.plan(run.phase, run.nodes, run.ranks_per_node, excluded)
    chosen: dict[Per, list[str]] = {}  # how many links and pairs are met was the run's own choice
    for gate_id, listed in run.planned.items():
        gate = catalogue.GATES.get(gate_id)
        if gate is not None and gate.per in ("link", "pair"):
            chosen.setdefault(gate.per, listed)
            planned[gate_id] = listed
        elif gate_id not in excluded:  # what concerns a node or a rank concerns all that were requested
            planned[gate_id] = list(dict.fromkeys([*listed, *planned.get(gate_id, [])]))
    for gate_id in planned:
        per = catalogue.GATES[gate_id].per if gate_id in catalogue.GATES else None
        if per in chosen and gate_id not in run.planned:
            planned[gate_id] = chosen[per]
    planned = {gate_id: listed for gate_id, listed in planned.items() if gate_id not in excluded}
    outcomes: dict[tuple[str, str], Outcome] = {}
    verdicts: list[Verdict] = []
    for gate_id in _needs_first(planned):
        for verdict in _judge_gate(gate_id, planned[gate_id], run, profile, seen, outcomes):
            outcomes[verdict.gate, verdict.subject] = verdict.outcome
            verdicts.append(verdict)
    return Verdicts(
        phase=run.phase,
        run=run.name,
        profile=profile.name,
        outcome=worst([verdict.outcome for verdict in verdicts]),
        verdicts=verdicts,
        not_applicable=not_applicable,
        notes=[*parsed.problems, *_strangers(run, parsed)],
    )


def is_fault_or_gap(verdict: Verdict, profile: Profile) -> bool:
    """A fail, or evidence that is missing. Not: a number that nobody has declared for this cluster yet."""
    gate = catalogue.GATES.get(verdict.gate)
    undeclared = gate is not None and isinstance(gate.expect, FromProfile) and gate.id not in profile.expect
    return verdict.outcome is Outcome.FAIL or (verdict.outcome is Outcome.INCOMPLETE and not undeclared)


def stops(verdict: Verdict, profile: Profile) -> bool:
    """Whether the phases that need this one would mean nothing. What could warn at worst is no such ground when it is missing."""
    gate = catalogue.GATES.get(verdict.gate)
    if gate is not None and (verdict.outcome not in gate.stops or gate.severity is Outcome.WARN):
        return False
    return is_fault_or_gap(verdict, profile)


def _needs_first(planned: Mapping[str, list[str]]) -> list[str]:
    """Gates in the catalogue's order, those that are needed before those that need them; unknown ones last."""
    order: list[str] = []

    def visit(gate_id: str) -> None:
        if gate_id in order or gate_id not in planned:
            return
        gate = catalogue.GATES.get(gate_id)
        for need in gate.needs if gate else ():
            visit(need)
        order.append(gate_id)

    for gate_id in [*catalogue.GATES, *planned]:
        visit(gate_id)
    return order


def _judge_gate(
    gate_id: str, subjects: list[str], run: Run, profile: Profile, seen: Seen, outcomes: Outcomes
) -> list[Verdict]:
    gate = catalogue.GATES.get(gate_id)
    if gate is None:
        return [
            Verdict(
                gate=gate_id,
                subject=subject,
                outcome=Outcome.INCOMPLETE,
                observed=NOTHING,
                expected="a gate that this version knows",
                evidence=runs.RUN,
                fix="docs/06-failure-modes.md#unknown-gate",
            )
            for subject in subjects
        ]
    if isinstance(gate.expect, Fleet):
        return _judge_fleet(gate, subjects, seen, None, outcomes)
    entry = profile.expect.get(gate.id) if isinstance(gate.expect, FromProfile) else None
    if entry is not None and entry.rule == "near_peers" and entry.unit == gate.unit:  # the profile chooses the rule
        quantity = gate.quantity if entry.at is None else f"{gate.quantity}@{entry.at}"
        return _judge_fleet(
            replace(gate, rule="near_peers", quantity=quantity), subjects, seen, entry.expected, outcomes
        )
    return [_judge_value(gate, subject, run, profile, seen, outcomes) for subject in subjects]


def _judge_value(gate: Gate, subject: str, run: Run, profile: Profile, seen: Seen, outcomes: Outcomes) -> Verdict:
    rule, expected, quantity = str(gate.rule), None, gate.quantity
    if isinstance(gate.expect, Fixed):
        expected = gate.expect.value
    elif isinstance(gate.expect, Requested):
        expected = subjects.requested(run, gate, subject, gate.expect.field, PHASES[run.phase].strategy)
    else:
        entry = profile.expect.get(gate.id)
        if entry is None:
            return _incomplete(
                gate, subject, "a number in the profile", f"profile {profile.name} declares no {gate.id}"
            )
        if entry.unit != gate.unit:
            return _incomplete(
                gate,
                subject,
                "a number in the profile",
                f"profile {profile.name} declares {gate.id} in {entry.unit}, the gate is in {gate.unit}",
            )
        rule, expected = entry.rule, entry.expected
        quantity = quantity if entry.at is None else f"{quantity}@{entry.at}"
    words = in_words(rule, expected, gate.unit) + (f" at {quantity.partition('@')[2]}" if "@" in quantity else "")
    unmet = _unmet(gate, subject, outcomes)
    if unmet:
        return _incomplete(gate, subject, words, unmet)
    found = seen.get((quantity, subject), [])
    if not found:
        return _incomplete(gate, subject, words, None)
    judged = [_compare(gate, rule, expected, words, one) for one in found]
    return max(judged, key=lambda verdict: verdict.outcome.rank)


def _unmet(gate: Gate, subject: str, outcomes: Outcomes) -> str | None:
    """Why this subject cannot be judged: gates that have to pass first."""
    unmet = [
        need for need in gate.needs if _need_outcome(need, subject, outcomes) not in (Outcome.PASS, Outcome.WARN, None)
    ]
    return f"not judged: {', '.join(unmet)} did not pass" if unmet else None


def _need_outcome(need: str, subject: str, outcomes: Outcomes) -> Outcome | None:
    """Of the same subject, or of the job. None: the gate was not planned here (not applicable, say)."""
    return outcomes.get((need, subject), outcomes.get((need, subjects.JOB)))


def _compare(gate: Gate, rule: str, expected: Expected | None, words: str, one: Observation) -> Verdict:
    if one.value is None:
        return _incomplete(gate, one.subject, words, f"not found out: {one.why}", one.evidence)
    if one.unit != gate.unit:
        return _incomplete(
            gate, one.subject, words, f"observed in {one.unit}, the gate is in {gate.unit}", one.evidence
        )
    if expected is None:
        return _incomplete(gate, one.subject, words, "this run requested nothing to compare with", one.evidence)
    try:
        good = holds(rule, one.value, expected)
    except RuleError as error:
        return _incomplete(gate, one.subject, words, str(error), one.evidence)
    return Verdict(
        gate=gate.id,
        subject=one.subject,
        outcome=Outcome.PASS if good else gate.severity,
        observed=_shown(one.value, gate.unit, one.why),
        expected=words,
        evidence=one.evidence,
        cause=None if good else one.why,
        fix=gate.fix,
    )


def _judge_fleet(
    gate: Gate, subjects: list[str], seen: Seen, expected: Expected | None, outcomes: Outcomes
) -> list[Verdict]:
    words = in_words(gate.rule, expected, gate.unit)
    unmet = {subject: why for subject in subjects if (why := _unmet(gate, subject, outcomes))}
    # who cannot be judged has no vote on what is usual either
    found = {
        subject: seen[gate.quantity, subject]
        for subject in subjects
        if subject not in unmet and seen.get((gate.quantity, subject))
    }
    # an unknown beside a value counts: half of what should be known is not known
    first = {
        subject: next((one for one in several if one.value is None), several[0]) for subject, several in found.items()
    }
    values: dict[str, Value] = {subject: one.value for subject, one in first.items() if one.value is not None}
    try:
        odd = odd_ones(gate.rule, values, expected) if values else {}
    except RuleError as error:
        return [_incomplete(gate, subject, words, str(error)) for subject in subjects]
    for subject, several in found.items():
        said = sorted({_shown(one.value, gate.unit, None) for one in several if one.value is not None})
        if len(said) > 1:
            odd[subject] = f"says both {' and '.join(said)}"
    alone = (
        f"compared with too few: {len(values)} of {len(subjects)} are known" if len(values) < _fewest(gate) else None
    )
    verdicts = []
    for subject in subjects:
        if subject not in first:
            verdicts.append(_incomplete(gate, subject, words, unmet.get(subject)))
        elif first[subject].unit != gate.unit:
            why = f"observed in {first[subject].unit}, the gate is in {gate.unit}"
            verdicts.append(_incomplete(gate, subject, words, why, first[subject].evidence))
        elif subject not in values:
            verdicts.append(
                _incomplete(gate, subject, words, f"not found out: {first[subject].why}", first[subject].evidence)
            )
        elif alone and subject not in odd:
            verdicts.append(_incomplete(gate, subject, words, alone, first[subject].evidence))
        else:
            verdicts.append(
                Verdict(
                    gate=gate.id,
                    subject=subject,
                    outcome=gate.severity if subject in odd else Outcome.PASS,
                    observed=_shown(values[subject], gate.unit, odd.get(subject)),
                    expected=words,
                    evidence=first[subject].evidence,
                    cause=odd.get(subject),
                    fix=gate.fix,
                )
            )
    return verdicts


def _fewest(gate: Gate) -> int:
    """Values that a comparison needs before a pass says anything: one alone is equal to itself. A gate that is planned for a
    single node, too, compares what is inside it."""
    return FEWEST_PEERS if gate.rule == "near_peers" else min(gate.min_nodes, 2)


def _incomplete(gate: Gate, subject: str, expected: str, cause: str | None, evidence: str = "none") -> Verdict:
    return Verdict(
        gate=gate.id,
        subject=subject,
        outcome=Outcome.INCOMPLETE,
        observed=NOTHING,
        expected=expected,
        evidence=evidence,
        cause=cause or "no evidence arrived",
        fix=gate.fix,
    )


def _shown(value: Value, unit: str, remark: str | None) -> str:
    if isinstance(value, bool):
        text = "yes" if value else "no"
    elif isinstance(value, list):
        text = ", ".join(value)
    elif isinstance(value, float):
        text = f"{value:.4g}"
    else:
        text = str(value)
    text += "" if unit in UNSAID else f" {unit}"
    return f"{text} ({remark})" if remark else text


def _strangers(run: Run, parsed: Parsed) -> list[str]:
    """Evidence about nodes that were not requested: from another run, perhaps. Slurm's own tables name all nodes."""
    known = {*run.nodes, subjects.JOB, *(subject for subjects in run.planned.values() for subject in subjects)}
    strange = sorted(
        {
            one.subject
            for one in parsed.observations
            if one.subject not in known
            and not one.quantity.startswith(("slurm.", "probe.", "pair."))
            and one.subject.split("/")[0] not in known
        }
    )
    return [f"evidence about {', '.join(strange)}, which this run did not request"] if strange else []
