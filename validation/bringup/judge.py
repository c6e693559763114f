"""Planned pairs + observations + profile -> verdicts. Pure: a function of one folder. No Slurm, no GPU, no torch, no clock."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bringup import results
from bringup.checks import catalogue, planned
from bringup.checks.reading import read_run
from bringup.errors import RuleError
from bringup.evidence.parsed import Parsed
from bringup.known_faults import signs
from bringup.plan import subjects as naming
from bringup.plan.gate import Fixed, FromProfile, Gate, Per, Requested
from bringup.plan.phases import PHASES
from bringup.plan.profile import Profile
from bringup.plan.rules import FEWEST_PEERS, FLEET, UNSAID, allowed, holds, in_words, odd_ones
from bringup.records import Kind, Limit, Observation, Outcome, Run, Value, Verdict, Verdicts, worst

Seen = Mapping[tuple[str, str], list[Observation]]
Outcomes = Mapping[tuple[str, str], Outcome]
NOTHING = "nothing"


@dataclass(frozen=True)
class Judged:
    """A run's folder, read and judged once."""

    folder: Path
    run: Run
    profile: Profile
    observations: list[Observation]
    problems: list[str]
    verdicts: Verdicts


def judge_folder(folder: Path, profile: Profile | None = None) -> Judged:
    """Against the run's own copy of the profile unless another one is given. Raises RunError, ProfileError."""
    run = results.load(folder)
    profile = results.load_profile(folder, run) if profile is None else profile
    with _no_garbage_collection():
        parsed = read_run(folder, run)
        verdicts = judge(run, profile, parsed)
    if verdicts.outcome is not Outcome.PASS:
        verdicts = verdicts.model_copy(update={"signs": signs.in_run(folder, run)})
    return Judged(folder, run, profile, parsed.observations, parsed.problems, verdicts)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """A fleet's evidence is hundreds of thousands of small objects without a cycle: looking for one takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def judge(run: Run, profile: Profile, parsed: Parsed) -> Verdicts:
    """One verdict per planned pair. A pair without evidence is incomplete; a plan without pairs is incomplete."""
    seen: dict[tuple[str, str], list[Observation]] = defaultdict(list)
    for observation in parsed.observations:
        seen[observation.quantity, observation.subject].append(observation)
    not_applicable = planned.excluded_here(run.phase, profile.not_applicable)
    pairs = _planned(run, {entry.gate for entry in not_applicable})
    judging = _Judging(run, profile, seen, {}, set(pairs))
    verdicts: list[Verdict] = []
    for gate_id in _needs_first(pairs):
        verdicts += judging.gate(gate_id, pairs[gate_id])
    return Verdicts(
        phase=run.phase,
        run=run.name,
        profile=profile.name,
        outcome=worst([verdict.outcome for verdict in verdicts]),
        verdicts=verdicts,
        not_applicable=not_applicable,
        notes=[*parsed.problems, *_strangers(run, parsed)],
    )


def is_fault_or_gap(verdict: Verdict) -> bool:
    """A fail, or evidence that is missing. Not: a number that nobody has declared for this cluster yet."""
    return verdict.outcome is Outcome.FAIL or (
        verdict.outcome is Outcome.INCOMPLETE and verdict.kind is not Kind.UNDECLARED
    )


def stops(verdict: Verdict) -> bool:
    """Whether the phases that need this one would mean nothing. A gate that can only warn stops nothing when it is missing."""
    gate = catalogue.GATES.get(verdict.gate)
    if gate is not None and (verdict.outcome not in gate.stops or gate.severity is Outcome.WARN):
        return False
    return is_fault_or_gap(verdict)


def _planned(run: Run, excluded: set[str]) -> dict[str, list[str]]:
    """gate -> subjects: what the run planned, and gates that are newer than the run, on the run's own nodes."""
    pairs = planned.plan(run.phase, run.nodes, run.ranks_per_node, excluded)
    chosen: dict[Per, list[str]] = {}  # which links and pairs are met was the run's own choice
    for gate_id, listed in run.planned.items():
        gate = catalogue.GATES.get(gate_id)
        if gate is not None and gate.per in ("link", "pair"):
            chosen.setdefault(gate.per, listed)
            pairs[gate_id] = listed
        else:  # what concerns a node or a rank concerns all that were requested
            pairs[gate_id] = list(dict.fromkeys([*listed, *pairs.get(gate_id, [])]))
    for gate_id in pairs:
        gate = catalogue.GATES.get(gate_id)
        if gate is not None and gate.per in chosen and gate_id not in run.planned:
            pairs[gate_id] = chosen[gate.per]
    return {gate_id: listed for gate_id, listed in pairs.items() if gate_id not in excluded}


def _needs_first(pairs: Mapping[str, list[str]]) -> list[str]:
    """Gates in the catalogue's order, those that are needed before those that need them; unknown ones last."""
    order: dict[str, None] = {}

    def visit(gate_id: str) -> None:
        if gate_id in order or gate_id not in pairs:
            return
        gate = catalogue.GATES.get(gate_id)
        for need in gate.needs if gate else ():
            visit(need)
        order[gate_id] = None

    for gate_id in [*catalogue.GATES, *pairs]:
        visit(gate_id)
    return list(order)


@dataclass(frozen=True)
class _Limit:
    """What a gate's value is compared with here."""

    rule: str
    value: Limit | None  # None with `undeclared`, and where nodes are compared with each other
    quantity: str
    undeclared: str | None = None  # why the profile gives no limit

    @property
    def at(self) -> str | None:
        return self.quantity.partition("@")[2] or None


@dataclass(frozen=True)
class _Judging:
    run: Run
    profile: Profile
    seen: Seen
    outcomes: dict[tuple[str, str], Outcome]
    planned: set[str]  # gates

    def gate(self, gate_id: str, subjects: list[str]) -> list[Verdict]:
        gate = catalogue.GATES.get(gate_id)
        if gate is None:
            return [_unknown_gate(gate_id, subject) for subject in subjects]
        limits = {subject: self._limit(gate, subject) for subject in subjects}
        first = limits[subjects[0]]
        if first.rule in FLEET and first.undeclared is None:
            verdicts = self._fleet(gate, first, subjects)
        else:
            verdicts = [self._value(gate, limits[subject], subject) for subject in subjects]
        for verdict in verdicts:
            self.outcomes[verdict.gate, verdict.subject] = verdict.outcome
        return verdicts

    def _limit(self, gate: Gate, subject: str) -> _Limit:
        if isinstance(gate.expect, Fixed):
            return _Limit(gate.rule, gate.expect.value, gate.quantity)
        if isinstance(gate.expect, Requested):
            strategy = PHASES[self.run.phase].strategy
            return _Limit(
                gate.rule, naming.requested(self.run, gate, subject, gate.expect.field, strategy), gate.quantity
            )
        if not isinstance(gate.expect, FromProfile):
            return _Limit(gate.rule, None, gate.quantity)
        entry = self.profile.expect.get(gate.id)
        why = None
        if entry is None:
            why = f"profile {self.profile.name} declares no {gate.id}"
        elif entry.unit != gate.unit:
            why = f"profile {self.profile.name} declares {gate.id} in {entry.unit}, the gate is in {gate.unit}"
        elif not allowed(gate.rule, entry.rule):
            why = f"profile {self.profile.name} declares {gate.id} as {entry.rule}, the gate is {gate.rule}"
        if entry is None or why is not None:
            return _Limit(gate.rule, None, gate.quantity, why)
        nodes = naming.scale_nodes(subject) if gate.per in ("scale", "wide_scale") else len(self.run.nodes)
        quantity = gate.quantity if entry.at is None else f"{gate.quantity}@{entry.at}"
        return _Limit(entry.rule, entry.limit(nodes), quantity)

    def _unmet(self, gate: Gate, subject: str) -> list[str]:
        """Gates that have to pass first and did not. One that was not planned at all (not applicable, say) does not count; one
        that was planned and has no verdict about this subject does."""
        return [need for need in gate.needs if need in self.planned and not self._passed(need, subject)]

    def _passed(self, need: str, subject: str) -> bool:
        """Of the same subject, of the node of a rank, or of the job."""
        for known in (subject, subject.partition("/")[0], naming.JOB):
            outcome = self.outcomes.get((need, known))
            if outcome is not None:
                return outcome in (Outcome.PASS, Outcome.WARN)
        return False

    def _value(self, gate: Gate, limit: _Limit, subject: str) -> Verdict:
        if limit.undeclared is not None:
            return _undeclared(gate, limit, subject, self._shown_without_limit(gate, subject))
        unmet = self._unmet(gate, subject)
        if unmet:
            return _blocked(gate, limit, subject, unmet)
        found = self.seen.get((limit.quantity, subject), [])
        if not found:
            return _incomplete(gate, limit, subject, Kind.ABSENT, "no evidence arrived")
        judged = [_compare(gate, limit, observation) for observation in found]
        return max(judged, key=lambda verdict: verdict.outcome.rank)

    def _shown_without_limit(self, gate: Gate, subject: str) -> list[Observation]:
        """What was observed of a gate that the profile has no number for: at every size that was measured."""
        prefix = f"{gate.quantity}@"
        found = list(self.seen.get((gate.quantity, subject), []))
        for (quantity, whose), observations in self.seen.items():
            if whose == subject and quantity.startswith(prefix):
                found += observations
        return [observation for observation in found if observation.value is not None]

    def _fleet(self, gate: Gate, limit: _Limit, subjects: list[str]) -> list[Verdict]:
        unmet = {subject: needs for subject in subjects if (needs := self._unmet(gate, subject))}
        # a subject that cannot be judged does not count in what is usual either
        found = {
            subject: self.seen[limit.quantity, subject]
            for subject in subjects
            if subject not in unmet and self.seen.get((limit.quantity, subject))
        }
        # an unknown beside a value counts: half of what should be known is not known
        first = {
            subject: next((observation for observation in several if observation.value is None), several[0])
            for subject, several in found.items()
        }
        values: dict[str, Value] = {
            subject: observation.value for subject, observation in first.items() if observation.value is not None
        }
        try:
            odd = odd_ones(limit.rule, values, limit.value) if values else {}
        except RuleError as error:
            return [_incomplete(gate, limit, subject, Kind.UNKNOWN, str(error)) for subject in subjects]
        for subject, several in found.items():
            told = sorted({_shown(seen.value, gate.unit, None) for seen in several if seen.value is not None})
            if len(told) > 1:
                odd[subject] = f"says both {' and '.join(told)}"
        few = f"compared with too few: {len(values)} of {len(subjects)} are known"
        alone = len(values) < _fewest(gate, limit.rule)
        verdicts = []
        for subject in subjects:
            observation = first.get(subject)
            if subject in unmet:
                verdicts.append(_blocked(gate, limit, subject, unmet[subject]))
            elif observation is None:
                verdicts.append(_incomplete(gate, limit, subject, Kind.ABSENT, "no evidence arrived"))
            elif observation.unit != gate.unit:
                verdicts.append(_wrong_unit(gate, limit, observation))
            elif observation.value is None:
                verdicts.append(_not_found_out(gate, limit, observation))
            elif alone and subject not in odd:
                verdicts.append(_incomplete(gate, limit, subject, Kind.UNKNOWN, few, observation))
            else:
                verdicts.append(_judged(gate, limit, observation, subject not in odd, odd.get(subject)))
        return verdicts


def _fewest(gate: Gate, rule: str) -> int:
    """Values that a comparison needs before a pass says anything: one alone is equal to itself. A gate that is planned for a
    single node, too, compares what is inside it."""
    return FEWEST_PEERS if rule == "near_peers" else min(gate.min_nodes, 2)


def _compare(gate: Gate, limit: _Limit, observation: Observation) -> Verdict:
    if observation.value is None:
        return _not_found_out(gate, limit, observation)
    if observation.unit != gate.unit:
        return _wrong_unit(gate, limit, observation)
    subject = observation.subject
    if limit.value is None:
        why = "this run requested nothing to compare with"
        return _incomplete(gate, limit, subject, Kind.UNKNOWN, why, observation)
    try:
        good = holds(limit.rule, observation.value, limit.value)
    except RuleError as error:
        return _incomplete(gate, limit, subject, Kind.UNKNOWN, str(error), observation)
    return _judged(gate, limit, observation, good, observation.why)


# --- verdicts ----------------------------------------------------------------------------------------------------------


def _judged(gate: Gate, limit: _Limit, observation: Observation, good: bool, remark: str | None) -> Verdict:
    assert observation.value is not None
    return Verdict(
        gate=gate.id,
        subject=observation.subject,
        outcome=Outcome.PASS if good else gate.severity,
        kind=Kind.JUDGED,
        value=observation.value,
        unit=gate.unit,
        rule=limit.rule,
        limit=limit.value,
        at=limit.at,
        observed=_shown(observation.value, gate.unit, remark),
        expected=_expected(gate, limit),
        evidence=observation.evidence,
        cause=None if good else remark,
        fix=gate.fix,
    )


def _incomplete(
    gate: Gate, limit: _Limit, subject: str, kind: Kind, cause: str, observation: Observation | None = None
) -> Verdict:
    return Verdict(
        gate=gate.id,
        subject=subject,
        outcome=Outcome.INCOMPLETE,
        kind=kind,
        value=None if observation is None else observation.value,
        unit=gate.unit,
        rule=limit.rule,
        limit=limit.value,
        at=limit.at,
        observed=NOTHING
        if observation is None or observation.value is None
        else _shown(observation.value, observation.unit, None),
        expected=_expected(gate, limit),
        evidence="none" if observation is None else observation.evidence,
        cause=cause,
        fix=gate.fix,
    )


def _not_found_out(gate: Gate, limit: _Limit, observation: Observation) -> Verdict:
    return _incomplete(gate, limit, observation.subject, Kind.UNKNOWN, f"not found out: {observation.why}", observation)


def _wrong_unit(gate: Gate, limit: _Limit, observation: Observation) -> Verdict:
    why = f"observed in {observation.unit}, the gate is in {gate.unit}"
    return _incomplete(gate, limit, observation.subject, Kind.UNKNOWN, why, observation)


def _blocked(gate: Gate, limit: _Limit, subject: str, by: list[str]) -> Verdict:
    verdict = _incomplete(gate, limit, subject, Kind.BLOCKED, f"not judged: {', '.join(by)} did not pass")
    return verdict.model_copy(update={"blocked_by": by})


def _undeclared(gate: Gate, limit: _Limit, subject: str, seen: list[Observation]) -> Verdict:
    """With what was observed all the same: it is the number that a profile needs."""
    verdict = _incomplete(gate, limit, subject, Kind.UNDECLARED, limit.undeclared or "")
    if not seen:
        return verdict
    shown = "; ".join(_shown(one.value, one.unit, _size(one)) for one in seen if one.value is not None)
    alone = seen[0] if len(seen) == 1 else None
    return verdict.model_copy(
        update={
            "value": None if alone is None else alone.value,
            "at": None if alone is None else _size(alone),
            "observed": shown,
            "evidence": seen[0].evidence,
        }
    )


def _size(observation: Observation) -> str | None:
    return observation.quantity.partition("@")[2] or None


def _unknown_gate(gate_id: str, subject: str) -> Verdict:
    return Verdict(
        gate=gate_id,
        subject=subject,
        outcome=Outcome.INCOMPLETE,
        kind=Kind.UNKNOWN,
        value=None,
        unit="text",
        rule="equals",
        limit=None,
        observed=NOTHING,
        expected="a gate that this version knows",
        evidence=results.RUN,
        cause="no gate is called so in this version",
        fix="docs/06-failure-modes.md#unknown-gate",
    )


# --- words -------------------------------------------------------------------------------------------------------------


def _expected(gate: Gate, limit: _Limit) -> str:
    if limit.undeclared is not None:
        return "a number in the profile"
    return in_words(limit.rule, limit.value, gate.unit) + (f" at {limit.at}" if limit.at else "")


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
    known = {*run.nodes, naming.JOB, *(subject for subjects in run.planned.values() for subject in subjects)}
    strange = sorted(
        {
            observation.subject
            for observation in parsed.observations
            if observation.subject not in known
            and not observation.quantity.startswith(("slurm.", "probe.", "pair."))
            and not known.issuperset(naming.nodes_of(observation.subject))
        }
    )
    return [f"evidence about {', '.join(strange)}, which this run did not request"] if strange else []
