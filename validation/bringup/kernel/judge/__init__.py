"""Planned pairs + observations + profile -> verdicts. A pure function of one folder: no Slurm, GPU, torch or clock."""

import gc
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path

from bringup import registry
from bringup.kernel.errors import RuleError
from bringup.kernel.facts.observations import Training, of_run
from bringup.kernel.facts.parser_result import Parsed, Seen, is_number
from bringup.kernel.judge.verdict import Requirement, of_unknown_gate
from bringup.kernel.plan import catalogue, ceiling, rounds, scope
from bringup.kernel.plan import subjects as naming
from bringup.kernel.plan.gate import OF_SITE, Fixed, Gate, Gates, Per, Requested
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.profile import Profile
from bringup.kernel.plan.rules import FEWEST_PEERS, FLEET, allowed, odd_ones, value_in_words
from bringup.kernel.records import Kind, Observation, Outcome, Run, Verdict, Verdicts, grouped, worst_of_run
from bringup.kernel.run_folder import RunFolder, Seal

Names = Mapping[str, str]  # of GPUs: NODE/UUID, UUID, or NODE/PCI:ADDRESS -> words
BySubject = Mapping[str, list[Observation]]
SCALES = ("scale", "wide_scale")
BEYOND = 1.2  # times the ceiling, which leaves out what a measurement may gain: no number is believed above it
EVIDENCE = ("run.closed", "run.evidence")  # if one of these gates does not pass, no number of the run may be used
AGREE = "train.records.agree"  # and if this one fails, of a training


@dataclass(frozen=True)
class Judged:
    """A run's folder, read and judged once."""

    files: RunFolder
    run: Run
    profile: Profile
    observations: list[Observation]
    problems: list[str]
    verdicts: Verdicts
    training: Training | None = None  # None: not a training phase, or the training did not finish
    own: Gates = field(default_factory=dict)  # checks of the site
    names: Names = field(default_factory=dict)  # of its GPUs
    seal: Seal | None = None  # None: it was not closed

    @property
    def folder(self) -> Path:
        """Return where it lies: what people are told, and what links lead to."""
        return self.files.path

    @cached_property
    def seen(self) -> Seen:
        """Return its observations by quantity."""
        return Seen(self.observations)

    @cached_property
    def measured(self) -> list[Observation]:
        """Return, in order, what collectives and pairs of nodes measured: of a discovery, which has most, nothing."""
        names = self.seen.starting_with("nccl.") | self.seen.starting_with("pair.")
        return [seen for seen in self.observations if seen.quantity in names] if names else []

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
    files = RunFolder(folder)
    with no_garbage_collection():
        run, seal = files.run, files.seal
        profile = files.profile if profile is None else profile
        is_training = PHASES[run.phase].is_training
        records: Training | None = registry.called(registry.TRAINING)(files) if is_training else None
        of_site = files.own_checks
        parsed, facts = of_run(files, records)
        if profile.is_open and run.phase == "discovery":  # it is what says which numbers these nodes have
            profile = registry.called(registry.NUMBERS)(profile, parsed.observations, run)
        verdicts = judge(run, profile, parsed, of_site, facts)
        if verdicts.outcome is not Outcome.PASS:
            verdicts = registry.called(registry.CAUSES)(verdicts, facts, run)
        names: Names = registry.called(registry.NAMES)(facts, run.gpus_per_node)
        verdicts = registry.called(registry.NAMED)(verdicts, names)
    if verdicts.outcome is not Outcome.PASS:
        verdicts = verdicts.model_copy(update={"signs": registry.called(registry.SIGNS)(files)})
    training = records if records is not None and records.are_whole else None
    return Judged(files, run, profile, parsed.observations, parsed.problems, verdicts, training, of_site, names, seal)


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Stop the search for cycles. A fleet's evidence is hundreds of thousands of small objects without cycles, and the
    search takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def judge(
    run: Run, profile: Profile, parsed: Parsed, own: Gates = catalogue.NONE, seen: Seen | None = None
) -> Verdicts:
    """Return a verdict per planned pair. A pair without evidence is incomplete; a plan without pairs is incomplete.
    seen: what was parsed, where it is known by quantity."""
    not_applicable = scope.not_applicable(run, profile.not_applicable)
    pairs = _planned(run, {entry.gate for entry in not_applicable})
    judged = {*pairs, rounds.ROUND}  # at any size
    seen = Seen(parsed.observations) if seen is None else seen
    observed = {name: seen.by_subject(name) for name in seen.starting_with("") if name.partition("@")[0] in judged}
    _plan_links_that_were_chosen(pairs, run, observed.get(rounds.ROUND, {}))
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
    is_gap = verdict.outcome is Outcome.INCOMPLETE and verdict.kind is not Kind.UNDECLARED
    return is_gap or verdict.outcome is Outcome.FAIL


def stops(verdict: Verdict) -> bool:
    """Say whether later phases would be meaningless after this verdict. A gate that only warns does not stop them, nor
    does a check of the site."""
    gate = catalogue.GATES.get(verdict.gate)
    goes_on = gate is not None and (verdict.outcome not in gate.stops or gate.severity is Outcome.WARN)
    return not goes_on and not verdict.gate.startswith(OF_SITE) and is_fault_or_gap(verdict)


def _planned(run: Run, excluded: set[str]) -> dict[str, list[str]]:
    """gate -> subjects: what the run planned, plus gates that are newer than the run, on the run's own nodes."""
    pairs = scope.plan(run.phase, run.nodes, run.ranks_per_node, excluded)
    chosen: dict[Per, list[str]] = {}  # links and pairs that the run itself chose to measure
    for gate_id, named in run.planned.items():
        gate = catalogue.GATES.get(gate_id)
        if gate is not None and gate.per in ("link", "pair"):
            chosen.setdefault(gate.per, named)
            pairs[gate_id] = named
        else:  # a gate of nodes or ranks covers all that were requested
            pairs[gate_id] = list(dict.fromkeys([*named, *pairs.get(gate_id, [])]))
    for gate_id in pairs:
        gate = catalogue.GATES.get(gate_id)
        if gate is not None and gate.per in chosen and gate_id not in run.planned:
            pairs[gate_id] = chosen[gate.per]
    return {gate_id: named for gate_id, named in pairs.items() if gate_id not in excluded}


def _plan_links_that_were_chosen(pairs: dict[str, list[str]], run: Run, of_rounds: Iterable[str]) -> None:
    """Add the links of rounds that were chosen during the run. Each round was recorded before it was measured, so a
    link without a result is reported as missing. Planned links are never removed."""
    nodes = set(run.nodes)
    chosen = [link for link in of_rounds if nodes.issuperset(naming.nodes_of(link))]
    for gate_id, named in pairs.items():
        gate = catalogue.GATES.get(gate_id)
        if gate is not None and gate.per == "link" and gate.phases and run.phase in gate.phases:
            pairs[gate_id] = list(dict.fromkeys([*named, *chosen]))


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
    seen: Mapping[str, BySubject]  # by quantity
    outcomes: dict[str, dict[str, Outcome]]  # gate -> subject -> outcome
    planned: set[str]  # gates
    gates: Gates
    undeclared: set[str] = field(default_factory=set)  # gates

    def gate(self, gate_id: str, subjects: list[str]) -> list[Verdict]:
        gate = self.gates.get(gate_id)
        if gate is None:
            return [of_unknown_gate(gate_id, subject) for subject in subjects]
        first = self._requirement(gate, subjects[0])
        alike = not isinstance(gate.expect, Requested) and gate.per not in SCALES
        required = {} if alike else {subject: self._requirement(gate, subject) for subject in subjects}
        unmet = self._unmet(gate, subjects)
        if first.rule in FLEET and first.undeclared is None:
            verdicts = self._fleet(first, subjects, unmet)
        else:
            verdicts = [
                against.blocked(subject, unmet[subject]) if subject in unmet else self._value(against, subject)
                for subject, against in ((subject, required.get(subject, first)) for subject in subjects)
            ]
        self.outcomes[gate_id] = {made.subject: made.outcome for made in verdicts}
        if any(each.undeclared is not None for each in (first, *required.values())):
            self.undeclared.add(gate_id)
        return verdicts

    def _requirement(self, gate: Gate, subject: str) -> Requirement:
        if isinstance(gate.expect, Fixed):
            return Requirement(gate, gate.expect.value)
        if isinstance(gate.expect, Requested):
            strategy = PHASES[self.run.phase].strategy
            return Requirement(gate, naming.requested(self.run, subject, gate.expect.field, strategy))
        if gate.expect == "fleet":
            return Requirement(gate)
        entry, name = self.profile.expect.get(gate.id), f"profile {self.profile.name}"
        if entry is None:
            return Requirement(gate, undeclared=f"{name} declares no {gate.id}")
        if entry.unit != gate.unit:
            why = f"{name} declares {gate.id} in {entry.unit}, the gate is in {gate.unit}"
            return Requirement(gate, undeclared=why, is_unusable=True)
        if not allowed(gate.rule, entry.rule):
            why = f"{name} declares {gate.id} as {entry.rule}, the gate is {gate.rule}"
            return Requirement(gate, undeclared=why, is_unusable=True)
        applied = self.profile.limit(gate.id, self._nodes_of(gate, subject), self.run.ranks_per_node)
        if applied.value is None:
            return Requirement(gate, undeclared=applied.why)
        return Requirement(gate, applied.value, entry.at, basis=applied.why, declared=entry.rule)

    def _nodes_of(self, gate: Gate, subject: str) -> int:
        return naming.scale_nodes(subject) if gate.per in SCALES else len(self.run.nodes)

    def _unmet(self, gate: Gate, subjects: list[str]) -> dict[str, list[str]]:
        """Return subject -> needed gates that did not pass for it; if such a gate has no verdict there, for the rank's
        node or for the job. A gate that was not planned (for example: not applicable) is ignored, and one for which the
        profile has no limit: it speaks against nothing. A planned gate without a verdict counts as not passed."""
        unmet: dict[str, list[str]] = {}
        for need in gate.needs:
            if need not in self.planned or need in self.undeclared:
                continue
            outcomes = self.outcomes.get(need, {})
            good = {subject for subject, outcome in outcomes.items() if outcome.is_good}
            for subject in subjects:
                if subject in good:
                    continue
                places = (subject, subject.partition("/")[0], naming.JOB)
                if next((place for place in places if place in outcomes), None) not in good:
                    unmet.setdefault(subject, []).append(need)
        return unmet

    def _value(self, against: Requirement, subject: str) -> Verdict:
        gate = against.gate
        seen = self.seen.get(against.quantity, {}).get(subject, [])
        if len(seen) == 1 and against.undeclared is None and gate.id not in ceiling.OF_GATE:  # most of a fleet
            return against.compared(seen[0])
        if against.undeclared is not None:
            strict = self.run.site is not None and self.run.site.says.get("strict") is True
            at_sizes = [each for by_subject in self._at_sizes.get(gate.id, ()) for each in by_subject.get(subject, ())]
            return against.without_limit(subject, [*seen, *at_sizes], strict=strict)
        judged = [
            against.compared(each) if (why := self._too_fast(gate, each)) is None else against.unknown(each, why)
            for each in seen
        ]
        return max(judged, key=lambda verdict: verdict.outcome.rank, default=None) or against.absent(subject)

    def _too_fast(self, gate: Gate, seen: Observation) -> str | None:
        """Why a bandwidth cannot be true: a unit or a clock slipped, or the ranks never left a GPU."""
        machine = self.profile.machine
        if gate.id not in ceiling.OF_GATE or not is_number(seen.value):
            return None
        if machine.gpus_per_node is None or machine.gpus_per_node.value != self.run.ranks_per_node:
            return None
        highest = ceiling.ceiling(gate.id, machine, self._nodes_of(gate, seen.subject))
        if isinstance(highest, str) or float(seen.value) <= BEYOND * highest.gb_per_s:
            return None
        return f"{seen.value:.4g} GB/s is more than this machine can reach: {highest}"

    @cached_property
    def _at_sizes(self) -> dict[str, list[BySubject]]:
        """What was measured at sizes of messages, or on ports of a rate, by gate."""
        return grouped((name.partition("@")[0], several) for name, several in self.seen.items() if "@" in name)

    def _fleet(self, against: Requirement, subjects: list[str], unmet: Mapping[str, list[str]]) -> list[Verdict]:
        gate, of_subjects = against.gate, self.seen.get(against.quantity, {})
        first: dict[str, Observation] = {}
        contradictory: dict[str, str] = {}
        for subject in subjects:
            several = of_subjects.get(subject)
            if subject in unmet or not several:  # it cannot be judged, and is left out of the comparison
                continue
            # an unknown beside a value makes the subject unknown: half of its evidence is missing
            first[subject] = next((seen for seen in several if seen.value is None), several[0])
            shown = {value_in_words(seen.value, gate.unit) for seen in several if seen.value is not None}
            if len(shown) > 1:
                contradictory[subject] = f"says both {' and '.join(sorted(shown))}"
        values = {subject: seen.value for subject, seen in first.items() if seen.value is not None}
        deciding = [self.outcomes.get(other, {}) for other in gate.decided_by]
        at_fault = {subject for subject in subjects for of in deciding if of.get(subject) is Outcome.FAIL}
        try:
            different = odd_ones(against.rule, values, against.limit, at_fault) if values else {}
        except RuleError as error:
            return [against.verdict(each, Outcome.INCOMPLETE, Kind.UNKNOWN, None, str(error)) for each in subjects]
        different |= contradictory
        too_few = f"compared with too few: {len(values)} of {len(subjects)} are known"
        # one value always equals itself; a gate that is planned for a single node, too, compares values inside that one
        is_too_few = len(values) < (FEWEST_PEERS if against.rule == "near_peers" else min(gate.min_nodes, 2))
        verdicts = []
        for subject in subjects:
            observation = first.get(subject)
            if subject in unmet:
                verdicts.append(against.blocked(subject, unmet[subject]))
            elif observation is None:
                verdicts.append(against.absent(subject))
            elif (why := against.unusable(observation)) is not None:
                verdicts.append(against.unknown(observation, why))
            elif is_too_few and subject not in different:
                verdicts.append(against.unknown(observation, too_few))
            else:
                verdicts.append(against.judged(observation, subject not in different, different.get(subject)))
        return verdicts


def _unexpected(run: Run, parsed: Parsed) -> list[str]:
    """Evidence about nodes that were not requested, possibly from another run. Slurm's own tables name all nodes, so
    they are ignored here, and what gates take from them."""
    scale = naming.scale_name(len(run.nodes))
    known = {*run.nodes, naming.JOB, scale, *(subject for subjects in run.planned.values() for subject in subjects)}
    others = {seen.subject for seen in parsed.observations if seen.subject not in known}
    others = {subject for subject in others if not known.issuperset(naming.nodes_of(subject))}
    if not others:
        return []
    foreign = (seen for seen in parsed.observations if seen.subject in others)
    unexpected = sorted({seen.subject for seen in foreign if not _is_of_a_table(seen.quantity)})
    return [f"evidence about {', '.join(unexpected)}, which this run did not request"] if unexpected else []


@cache
def _is_of_a_table(quantity: str) -> bool:
    gate = catalogue.GATES.get(quantity)
    of_slurm = gate is not None and any(fact.startswith("slurm.") for fact in gate.fold.facts)
    return of_slurm or quantity.startswith(("slurm.", "probe.", "pair."))
