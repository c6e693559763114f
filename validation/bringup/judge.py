"""Planned pairs + observations + profile -> verdicts. A pure function of one folder: no Slurm, GPU, torch or clock."""

from __future__ import annotations

import gc
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from bringup import results
from bringup.derive.blame import Names, blame, named, names_of
from bringup.derive.observed import read_run
from bringup.errors import RuleError
from bringup.evidence import pair_rounds
from bringup.evidence.curve import size_bytes
from bringup.evidence.parsed import Parsed, is_number
from bringup.known_faults import signs
from bringup.plan import auto, catalogue, ceiling, own, planned
from bringup.plan import subjects as naming
from bringup.plan.gate import Fixed, Gate, Per, Requested
from bringup.plan.phases import PHASES
from bringup.plan.profile import Profile
from bringup.plan.rules import FEWEST_PEERS, FLEET, SPOKEN, allowed, holds, in_words, odd_ones, value_in_words
from bringup.records import Kind, Limit, Observation, Outcome, Run, Value, Verdict, Verdicts, files, worst_of_run
from bringup.results import RUN, Seal, TrainingRecords

ByPair = Mapping[tuple[str, str], list[Observation]]  # gate and subject
NOTHING = "nothing"
BEYOND = 1.2  # times the ceiling, which leaves out what a measurement may gain: no number is believed above it
EVIDENCE = ("run.closed", "run.evidence")  # if one of these gates does not pass, no number of the run may be used
AGREE = "train.records.agree"  # and if this one fails, of a training


@dataclass(frozen=True)
class Judged:
    """A run's folder, read and judged once."""

    folder: Path
    run: Run
    profile: Profile
    observations: list[Observation]
    problems: list[str]
    verdicts: Verdicts
    training: TrainingRecords | None = None  # None: not a training phase, or the training did not finish
    own: catalogue.Gates = field(default_factory=dict)  # checks of the site
    names: Names = field(default_factory=dict)  # of its GPUs
    seal: Seal | None = None  # None: it was not closed

    @property
    def objection(self) -> str | None:
        """Say why its numbers must not be used: a gate of EVIDENCE did not pass, or records contradict themselves."""
        known = {verdict.gate: verdict for verdict in self.verdicts.verdicts if verdict.gate in (*EVIDENCE, AGREE)}
        for gate in EVIDENCE:
            verdict = known.get(gate)
            if verdict is None:
                return f"{gate} was not judged"
            if verdict.outcome is not Outcome.PASS:
                return f"{gate}: {verdict.cause or f'observed {verdict.observed}'}"
        if (agree := known.get(AGREE)) is not None and agree.outcome is Outcome.FAIL:
            return f"{AGREE}: {agree.cause}"
        return None


def judge_folder(folder: Path, profile: Profile | None = None) -> Judged:
    """Judge a run's folder against its own copy of the profile, or against `profile`. Raises RunError, FileError."""
    with _no_garbage_collection(), files.checksums_of_reads():
        run, seal = results.load(folder), results.read_seal(folder)
        profile = results.load_profile(folder, run) if profile is None else profile
        records, of_site = TrainingRecords(folder), own.of_run(folder / results.OWN_CHECKS)
        parsed, facts = read_run(folder, run, records, seal)
        if auto.is_open(profile) and run.phase == "discovery":  # it is what says which numbers these nodes have
            made = auto.completed(auto.seen(parsed.observations, run.nodes, run.cluster))
            profile = auto.with_own(profile, made)
        verdicts = blame(judge(run, profile, parsed, of_site), facts, run)
        names = names_of(facts, run.gpus_per_node)
        verdicts = named(verdicts, names)
    if verdicts.outcome is not Outcome.PASS:
        verdicts = verdicts.model_copy(update={"signs": signs.in_run(folder, run)})
    training = records if PHASES[run.phase].is_training and records.are_whole else None
    return Judged(folder, run, profile, parsed.observations, parsed.problems, verdicts, training, of_site, names, seal)


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Stop the search for cycles. A fleet's evidence is hundreds of thousands of small objects without cycles, and the
    search takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def judge(run: Run, profile: Profile, parsed: Parsed, own: catalogue.Gates = catalogue.NONE) -> Verdicts:
    """Return a verdict per planned pair. A pair without evidence is incomplete; a plan without pairs is incomplete."""
    observed: dict[tuple[str, str], list[Observation]] = defaultdict(list)
    not_applicable = planned.not_applicable(run, profile.not_applicable)
    pairs = _planned(run, {entry.gate for entry in not_applicable})
    judged = {*pairs, pair_rounds.ROUND}  # at any size
    quantities = {observation.quantity for observation in parsed.observations}
    quantities = {quantity for quantity in quantities if quantity.partition("@")[0] in judged}
    for observation in parsed.observations:
        if observation.quantity in quantities:
            observed[observation.quantity, observation.subject].append(observation)
    _plan_links_that_were_chosen(pairs, run, observed)
    judging = _Judging(run, profile, observed, {}, set(pairs), {**own, **catalogue.GATES})
    verdicts: list[Verdict] = []
    for gate_id in _needs_first(pairs):
        verdicts += judging.gate(gate_id, pairs[gate_id])
    return Verdicts(
        phase=run.phase,
        run=run.name,
        profile=profile.name,
        recognised=profile.recognised,
        outcome=worst_of_run([verdict.outcome for verdict in verdicts]),
        verdicts=verdicts,
        not_applicable=not_applicable,
        notes=[*parsed.problems, *_unexpected(run, parsed)],
    )


def is_fault_or_gap(verdict: Verdict) -> bool:
    """Say whether it is a fail, or evidence is missing. A number without a limit is neither."""
    return verdict.outcome is Outcome.FAIL or (
        verdict.outcome is Outcome.INCOMPLETE and verdict.kind is not Kind.UNDECLARED
    )


def stops(verdict: Verdict) -> bool:
    """Say whether later phases would be meaningless after this verdict. A gate that only warns does not stop them, nor
    does a check of the site."""
    gate = catalogue.GATES.get(verdict.gate)
    if verdict.gate.startswith(own.PREFIX):
        return False
    if gate is not None and (verdict.outcome not in gate.stops or gate.severity is Outcome.WARN):
        return False
    return is_fault_or_gap(verdict)


def _planned(run: Run, excluded: set[str]) -> dict[str, list[str]]:
    """gate -> subjects: what the run planned, plus gates that are newer than the run, on the run's own nodes."""
    pairs = planned.plan(run.phase, run.nodes, run.ranks_per_node, excluded)
    chosen: dict[Per, list[str]] = {}  # links and pairs that the run itself chose to measure
    for gate_id, listed in run.planned.items():
        gate = catalogue.GATES.get(gate_id)
        if gate is not None and gate.per in ("link", "pair"):
            chosen.setdefault(gate.per, listed)
            pairs[gate_id] = listed
        else:  # a gate of nodes or ranks covers all that were requested
            pairs[gate_id] = list(dict.fromkeys([*listed, *pairs.get(gate_id, [])]))
    for gate_id in pairs:
        gate = catalogue.GATES.get(gate_id)
        if gate is not None and gate.per in chosen and gate_id not in run.planned:
            pairs[gate_id] = chosen[gate.per]
    return {gate_id: listed for gate_id, listed in pairs.items() if gate_id not in excluded}


def _plan_links_that_were_chosen(pairs: dict[str, list[str]], run: Run, observed: ByPair) -> None:
    """Add the links of rounds that were chosen during the run. Each round was recorded before it was measured, so a
    link without a result is reported as missing. Planned links are never removed."""
    nodes = set(run.nodes)
    chosen = [
        link for quantity, link in observed if quantity == pair_rounds.ROUND and nodes.issuperset(naming.nodes_of(link))
    ]
    for gate_id, listed in pairs.items():
        gate = catalogue.GATES.get(gate_id)
        if gate is not None and gate.per == "link" and gate.phases and run.phase in gate.phases:
            pairs[gate_id] = list(dict.fromkeys([*listed, *chosen]))


def _needs_first(pairs: Mapping[str, list[str]]) -> list[str]:
    """Gates in the catalogue's order, but each gate after the gates that it needs; unknown gates last."""
    order: dict[str, None] = {}

    def visit(gate_id: str) -> None:
        if gate_id in order or gate_id not in pairs:
            return
        gate = catalogue.GATES.get(gate_id)
        for need in (*gate.needs, *gate.decided_by) if gate else ():
            visit(need)
        order[gate_id] = None

    for gate_id in [*catalogue.GATES, *pairs]:
        visit(gate_id)
    return list(order)


@dataclass(frozen=True)
class _Judging:
    run: Run
    profile: Profile
    seen: ByPair
    outcomes: dict[tuple[str, str], Outcome]
    planned: set[str]  # gates
    gates: catalogue.Gates
    undeclared: set[str] = field(default_factory=set)  # gates

    def gate(self, gate_id: str, subjects: list[str]) -> list[Verdict]:
        gate = self.gates.get(gate_id)
        if gate is None:
            return [_unknown_gate(gate_id, subject) for subject in subjects]
        first = self._requirement(gate, subjects[0])
        alike = not isinstance(gate.expect, Requested) and gate.per not in ("scale", "wide_scale")
        required = {subject: first if alike else self._requirement(gate, subject) for subject in subjects}
        if first.rule in FLEET and first.undeclared is None:
            verdicts = self._fleet(gate, first, subjects)
        else:
            verdicts = [self._value(gate, required[subject], subject) for subject in subjects]
        for made in verdicts:
            self.outcomes[made.gate, made.subject] = made.outcome
            if required[made.subject].undeclared is not None:
                self.undeclared.add(made.gate)
        return verdicts

    def _requirement(self, gate: Gate, subject: str) -> Requirement:
        if isinstance(gate.expect, Fixed):
            return Requirement(gate.unit, gate.rule, gate.expect.value, gate.id)
        if isinstance(gate.expect, Requested):
            strategy = PHASES[self.run.phase].strategy
            asked = naming.requested(self.run, subject, gate.expect.field, strategy)
            return Requirement(gate.unit, gate.rule, asked, gate.id)
        if gate.expect == "fleet":
            return Requirement(gate.unit, gate.rule, None, gate.id)
        entry = self.profile.expect.get(gate.id)
        why = None
        if entry is None:
            why = f"profile {self.profile.name} declares no {gate.id}"
        elif entry.unit != gate.unit:
            why = f"profile {self.profile.name} declares {gate.id} in {entry.unit}, the gate is in {gate.unit}"
        elif not allowed(gate.rule, entry.rule):
            why = f"profile {self.profile.name} declares {gate.id} as {entry.rule}, the gate is {gate.rule}"
        if entry is None or why is not None:
            return Requirement(gate.unit, gate.rule, None, gate.id, why, is_unusable=entry is not None)
        nodes = naming.scale_nodes(subject) if gate.per in ("scale", "wide_scale") else len(self.run.nodes)
        applied = self.profile.limit(gate.id, nodes, self.run.ranks_per_node)
        if applied.value is None:
            return Requirement(gate.unit, gate.rule, None, gate.id, applied.why)
        quantity = gate.id if entry.at is None else f"{gate.id}@{entry.at}"
        return Requirement(gate.unit, entry.rule, applied.value, quantity, basis=applied.why)

    def _unmet(self, gate: Gate, subject: str) -> list[str]:
        """Needed gates that did not pass. A gate that was not planned (for example: not applicable) is ignored, and one
        for which the profile has no limit: it speaks against nothing. A planned gate without a verdict about this
        subject counts as not passed."""
        asked = self.planned - self.undeclared
        return [need for need in gate.needs if need in asked and not self._passed(need, subject)]

    def _passed(self, need: str, subject: str) -> bool:
        """Whether `need` passed for this subject; if it has no verdict there, for the rank's node or for the job."""
        for known in (subject, subject.partition("/")[0], naming.JOB):
            outcome = self.outcomes.get((need, known))
            if outcome is not None:
                return outcome.is_good
        return False

    def _value(self, gate: Gate, against: Requirement, subject: str) -> Verdict:
        unmet = self._unmet(gate, subject)
        if unmet:
            return _blocked(gate, against, subject, unmet)
        if against.undeclared is not None:
            return self._without_limit(gate, against, subject)
        observations = self.seen.get((against.quantity, subject), [])
        if not observations:
            return _incomplete(gate, against, subject, Kind.ABSENT, "no evidence arrived")
        judged = [
            _incomplete(gate, against, subject, Kind.UNKNOWN, why, observation)
            if (why := self._too_fast(gate, observation)) is not None
            else _compared(gate, against, observation)
            for observation in observations
        ]
        return max(judged, key=lambda verdict: verdict.outcome.rank)

    def _too_fast(self, gate: Gate, seen: Observation) -> str | None:
        """Why a bandwidth cannot be true: a unit or a clock slipped, or the ranks never left a GPU."""
        if gate.id not in ceiling.OF_GATE or not is_number(seen.value):
            return None
        of_scale = gate.per in ("scale", "wide_scale")
        nodes = naming.scale_nodes(seen.subject) if of_scale else len(self.run.nodes)
        machine = self.profile.machine
        if machine.gpus_per_node is None or machine.gpus_per_node.value != self.run.ranks_per_node:
            return None
        highest = ceiling.ceiling(gate.id, machine, nodes)
        if isinstance(highest, str) or float(seen.value) <= BEYOND * highest.gb_per_s:
            return None
        return f"{seen.value:.4g} GB/s is more than this machine can reach: {highest}"

    def _without_limit(self, gate: Gate, against: Requirement, subject: str) -> Verdict:
        """Judge what was measured where the profile has no number: every size is shown, and the value is that of the
        size which tells most."""
        whole = self.seen.get((gate.id, subject), [])
        sized = self._at_sizes.get((gate.id, subject), [])
        usable = [observation for observation in [*whole, *sized] if _unusable(gate, observation) is None]
        for observation in whole if usable else [*whole, *sized]:
            if (why := _unusable(gate, observation)) is not None:
                return _incomplete(gate, against, subject, Kind.UNKNOWN, why, observation)
        if not usable:
            return _incomplete(gate, against, subject, Kind.ABSENT, "no evidence arrived")
        is_gap = against.is_unusable or (self.run.site is not None and self.run.site.says.get("strict") is True)
        return _undeclared(gate, against, subject, usable, Outcome.INCOMPLETE if is_gap else Outcome.NO_LIMIT)

    @cached_property
    def _at_sizes(self) -> dict[tuple[str, str], list[Observation]]:
        """What was measured at sizes of messages, or on ports of a rate; of a gate and a subject."""
        measured: dict[tuple[str, str], list[Observation]] = defaultdict(list)
        for (quantity, subject), several in self.seen.items():
            gate, at, _ = quantity.partition("@")
            if at:
                measured[gate, subject] += several
        return measured

    def _at_fault(self, gate: Gate, subjects: list[str]) -> set[str]:
        """Subjects that another gate failed without comparing them with their peers."""
        return {
            subject
            for subject in subjects
            for deciding_gate in gate.decided_by
            if self.outcomes.get((deciding_gate, subject)) is Outcome.FAIL
        }

    def _fleet(self, gate: Gate, against: Requirement, subjects: list[str]) -> list[Verdict]:
        unmet = {subject: needs for subject in subjects if (needs := self._unmet(gate, subject))}
        # a subject that cannot be judged is left out of the comparison
        observations = {
            subject: self.seen[against.quantity, subject]
            for subject in subjects
            if subject not in unmet and self.seen.get((against.quantity, subject))
        }
        # an unknown beside a value makes the subject unknown: half of its evidence is missing
        first = {
            subject: next((observation for observation in several if observation.value is None), several[0])
            for subject, several in observations.items()
        }
        values: dict[str, Value] = {
            subject: observation.value for subject, observation in first.items() if observation.value is not None
        }
        try:
            different = odd_ones(against.rule, values, against.value, self._at_fault(gate, subjects)) if values else {}
        except RuleError as error:
            return [_incomplete(gate, against, subject, Kind.UNKNOWN, str(error)) for subject in subjects]
        for subject, several in observations.items():
            values_shown = sorted({value_in_words(item.value, gate.unit) for item in several if item.value is not None})
            if len(values_shown) > 1:
                different[subject] = f"says both {' and '.join(values_shown)}"
        too_few = f"compared with too few: {len(values)} of {len(subjects)} are known"
        is_too_few = len(values) < _fewest(gate, against.rule)
        verdicts = []
        for subject in subjects:
            observation = first.get(subject)
            if subject in unmet:
                verdicts.append(_blocked(gate, against, subject, unmet[subject]))
            elif observation is None:
                verdicts.append(_incomplete(gate, against, subject, Kind.ABSENT, "no evidence arrived"))
            elif (why := _unusable(gate, observation)) is not None:
                verdicts.append(_incomplete(gate, against, subject, Kind.UNKNOWN, why, observation))
            elif is_too_few and subject not in different:
                verdicts.append(_incomplete(gate, against, subject, Kind.UNKNOWN, too_few, observation))
            else:
                verdicts.append(_judged(gate, against, observation, subject not in different, different.get(subject)))
        return verdicts


def _fewest(gate: Gate, rule: str) -> int:
    """How many values a comparison needs: two, because one value always equals itself. A gate that is planned for a
    single node, too, compares values inside that node, so one is enough."""
    return FEWEST_PEERS if rule == "near_peers" else min(gate.min_nodes, 2)


def _unexpected(run: Run, parsed: Parsed) -> list[str]:
    """Evidence about nodes that were not requested, possibly from another run. Slurm's own tables name all nodes, so
    they are ignored here, and what gates take from them."""
    scale = naming.scale_name(len(run.nodes))
    known = {*run.nodes, naming.JOB, scale, *(subject for subjects in run.planned.values() for subject in subjects)}
    others = {subject for subject in {seen.subject for seen in parsed.observations} if subject not in known}
    others = {subject for subject in others if not known.issuperset(naming.nodes_of(subject))}
    unexpected = sorted(
        {
            seen.subject
            for seen in parsed.observations
            if seen.subject in others
            and not seen.quantity.startswith(("slurm.", "probe.", "pair."))
            and not _is_of_slurm(seen.quantity)
        }
    )
    return [f"evidence about {', '.join(unexpected)}, which this run did not request"] if unexpected else []


@cache
def _is_of_slurm(quantity: str) -> bool:
    gate = catalogue.GATES.get(quantity)
    return gate is not None and any(fact.startswith("slurm.") for fact in gate.fold.facts)


# --- one verdict, from a gate, its requirement and what was seen. Its words are made last, from the data


@dataclass(frozen=True)
class Requirement:
    """What a gate's value is compared with in this run."""

    unit: str
    rule: str
    value: Limit | None  # None with `undeclared`, and if nodes are compared with each other
    quantity: str
    undeclared: str | None = None  # why the profile gives no limit
    basis: str | None = None  # how the limit was computed from the number of nodes
    is_unusable: bool = False  # it gives one, in another unit or as another rule

    @property
    def at(self) -> str | None:
        return self.quantity.partition("@")[2] or None

    @cached_property
    def in_words(self) -> str:
        if self.undeclared is not None:
            return "a number in the profile"
        at = f" at {self.at}" if self.at else ""
        basis = f" ({self.basis})" if self.basis else ""
        return in_words(self.rule, self.value, self.unit) + at + basis

    @cached_property
    def spoken(self) -> str:
        """Say the same inside a sentence: `at least 346 GB/s at 8GiB`."""
        return in_words(self.rule, self.value, self.unit, SPOKEN) + (f" at {self.at}" if self.at else "")

    def fails(self, gate: Gate, value: Value) -> str:
        """Say what is wrong, with the value and the limit in it: a share as a percentage."""
        limit = self.value
        if gate.unit != "ratio" or "{value} of" not in gate.fails or not is_number(value):
            return gate.fails.format(value=value_in_words(value, gate.unit), limit=self.spoken)
        if is_number(limit):
            limit = float(f"{100 * limit:.4g}")
        asked = in_words(self.rule, limit, "%", SPOKEN) if self.rule in SPOKEN else self.spoken
        return gate.fails.format(value=f"{100 * value:.3g} %", limit=asked)


def _verdict(
    gate: Gate,
    against: Requirement,
    subject: str,
    outcome: Outcome,
    kind: Kind,
    seen: Observation | None,
    cause: str | None,
    remark: str | None = None,
) -> Verdict:
    value = None if seen is None or seen.value is None else value_in_words(seen.value, seen.unit)
    is_miss = kind is Kind.JUDGED and outcome is not Outcome.PASS
    return Verdict(
        gate=gate.id,
        subject=subject,
        outcome=outcome,
        kind=kind,
        value=None if seen is None else seen.value,
        unit=gate.unit,
        rule=against.rule,
        limit=against.value,
        at=against.at,
        basis=against.basis,
        observed=NOTHING if value is None else _remarked(value, remark),
        expected=against.in_words,
        fails=against.fails(gate, seen.value) if is_miss and seen is not None and seen.value is not None else None,
        evidence="none" if seen is None else seen.evidence,
        cause=cause,
        fix=gate.fix,
        action=gate.helps if is_miss else None,
    )


def _judged(gate: Gate, against: Requirement, seen: Observation, good: bool, remark: str | None) -> Verdict:
    outcome = Outcome.PASS if good else gate.severity
    return _verdict(gate, against, seen.subject, outcome, Kind.JUDGED, seen, None if good else remark, remark)


def _incomplete(
    gate: Gate, against: Requirement, subject: str, kind: Kind, cause: str, seen: Observation | None = None
) -> Verdict:
    return _verdict(gate, against, subject, Outcome.INCOMPLETE, kind, seen, cause)


_NEVER_BELOW_0 = ("s", "ms", "us", "GiB", "GB/s", "TFLOP/s", "ratio", "share")


def _unusable(gate: Gate, seen: Observation) -> str | None:
    """Why it can be compared with nothing."""
    if seen.value is None:
        return f"not found out: {seen.why}"
    if seen.unit in _NEVER_BELOW_0 and is_number(seen.value) and seen.value < 0:
        return f"observed {seen.value:g} {seen.unit}: no amount is below 0"
    return None if seen.unit == gate.unit else f"observed in {seen.unit}, the gate is in {gate.unit}"


def _compared(gate: Gate, against: Requirement, seen: Observation) -> Verdict:
    why = _unusable(gate, seen)
    if why is None and against.value is None:
        why = "this run requested nothing to compare with"
    if why is None and seen.value is not None and against.value is not None:
        try:
            return _judged(gate, against, seen, holds(against.rule, seen.value, against.value), seen.why)
        except RuleError as error:
            why = str(error)
    return _incomplete(gate, against, seen.subject, Kind.UNKNOWN, str(why), seen)


def _blocked(gate: Gate, against: Requirement, subject: str, by: list[str]) -> Verdict:
    made = _incomplete(gate, against, subject, Kind.BLOCKED, f"not judged: {', '.join(by)} did not pass")
    return made.model_copy(update={"blocked_by": by})


def _undeclared(
    gate: Gate, against: Requirement, subject: str, observations: list[Observation], outcome: Outcome
) -> Verdict:
    """Show the observed values, for a person and the next profile: this profile declares no number."""
    text = "; ".join(
        _remarked(value_in_words(observation.value, observation.unit), _size(observation))
        for observation in observations
        if observation.value is not None
    )
    shown = _most_telling(gate, observations)
    made = _verdict(gate, against, subject, outcome, Kind.UNDECLARED, shown, against.undeclared)
    return made.model_copy(update={"at": _size(shown), "observed": text})


def _most_telling(gate: Gate, observations: list[Observation]) -> Observation:
    """Of a speed the largest message, of a time the smallest; of several values there the worst one."""
    worst_of, size_of = (max, min) if gate.rule == "at_most" else (min, max)

    def size(observation: Observation) -> int:
        return size_bytes(_size(observation) or "") or 0

    chosen = size_of(map(size, observations))
    there = [observation for observation in observations if size(observation) == chosen]
    numbers = [observation for observation in there if isinstance(observation.value, int | float)]
    return worst_of(numbers, key=lambda each: float(each.value)) if numbers else there[0]  # type: ignore[arg-type]


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
        evidence=RUN,
        cause="no gate is called so in this version",
        fix="docs/gates/run.md#unknown-gate",
    )


def _remarked(text: str, remark: str | None) -> str:
    return f"{text} ({remark})" if remark else text
