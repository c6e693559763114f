"""Folds: what was observed of the devices or ranks of a subject -> the value that a gate judges. `from:` names one.

Two decisions hold for all of them:

- A fault that was seen beats a device that was silent. What is known is judged, and beside it stands an unknown for
  those that said nothing. The worse outcome of the two counts.
- Of two nodes the better one is usual. Of an even number of values, the better one of the two in the middle is.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from operator import itemgetter
from statistics import median_high
from typing import NamedTuple

from bringup.kernel.facts.names import first_few
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.plan.gate import Gate
from bringup.kernel.plan.subjects import JOB
from bringup.kernel.records import Observation, Run, grouped

ABSENT = "absent"  # as a probe says of a library or a setting that a node lacks
ASKED_OF_EACH = {"discovery.gpu.": "discovery.gpu.answering"}
"""Names of facts that a probe asks of each device, by how they begin -> the fact that counts these devices. A device
that does not say one of them is unknown, whatever the check names behind `of`."""
ALONE = "no other node was there to compare with"

_NO_FAULT = {  # why Slurm ended a step -> what to do
    "preemption": "run it again, in a partition or QOS whose jobs are not preempted",
    "time limit": "run it again, with a longer time limit",
    "job requeue": "run it again",
}


class Group(NamedTuple):
    """What was observed of one subject of a gate."""

    subject: str
    facts: list[Observation]
    counted: Observation | None = None  # the fact that says how many there must be
    expected: int | None = None

    @property
    def lacking(self) -> list[Observation]:
        """Return devices that do not have what is asked, beside others that have it."""
        return [fact for fact in self.facts if fact.value == ABSENT] if self.numbers else []

    @property
    def numbers(self) -> list[tuple[float, Observation]]:
        return [(float(fact.value), fact) for fact in self.facts if isinstance(fact.value, int | float)]

    def silent(self) -> tuple[str, str] | None:
        """Return (evidence, reason) if a device gave no number, or is missing."""
        lacking = self.lacking
        silent = (fact for fact in self.facts if not isinstance(fact.value, int | float) and fact not in lacking)
        if (unknown := next(silent, None)) is not None:
            why = unknown.why if unknown.value is None else f"not a number: {unknown.value!r}"
            return unknown.evidence, named(unknown, why)
        return self.missing()

    def missing(self) -> tuple[str, str] | None:
        """Return (evidence, reason) if fewer devices answered than there must be."""
        number = len({(fact.subject, fact.quantity) for fact in self.facts})
        if self.counted is None:
            few = number < (self.expected or 0)
            return (self.facts[0].evidence, f"{number} of {self.expected} answered") if few else None
        if self.counted.value is None:
            return self.counted.evidence, self.counted.why or "how many there are is not known"
        few = self.counted.value != number
        return (self.counted.evidence, f"{number} of {self.counted.value} answered") if few else None


def facts_of(gate: Gate, observed: Seen) -> list[Observation]:
    """Return what the gate's facts say. Of its own name only that of devices: its subjects have values already."""
    several: dict[str, list[Observation]] = {}
    for name in gate.fold.facts:
        several |= observed.starting_with(name[:-1]) if name.endswith("*") else {name: observed.of(name)}
    if gate.id in several:
        several[gate.id] = [fact for fact in several[gate.id] if fact.device]
    return [fact for of in several.values() for fact in of]


def groups(gate: Gate, observed: Seen, run: Run) -> list[Group]:
    of = gate.fold.of or _asked_of_each(gate)
    facts = facts_of(gate, observed)
    of_subjects = by_node(facts) if gate.per == "node" else {JOB: facts} if facts else {}
    if "." in of:
        # said of the node as a whole: nvidia-smi lists no process on any GPU
        whole = {fact.subject for fact in observed.of(gate.id) if not fact.device and fact.value is not None}
        return [
            Group(count.subject, of_subjects.get(count.subject, []), None if count.subject in whole else count)
            for count in observed.of(of)
            if gate.fold.of or count.subject in of_subjects  # else: no device was asked, and no evidence arrived
        ]
    expected = _number(of, run) if of else None
    return [Group(subject, several, None, expected) for subject, several in of_subjects.items()]


def _asked_of_each(gate: Gate) -> str:
    begins = next((begin for begin in ASKED_OF_EACH if all(fact.startswith(begin) for fact in gate.fold.facts)), "")
    return ASKED_OF_EACH.get(begins, "") if gate.fold.facts else ""


def _number(of: str, run: Run) -> int:
    if of == "folders":
        return 1 + sum(label in run.site.says for label in ("scratch", "checkpoints") if run.site)
    return run.gpus_per_node if of == "gpus_per_node" else int(of)


def ended_by_slurm(observed: Seen, step: str | None) -> str | None:
    """Say that Slurm ended this step, although nothing failed, and what to do. None: it did not."""
    end = next(iter(observed.of("slurm.launch.ended", step)), None)
    if end is None or end.value not in _NO_FAULT:
        return None
    return f"Slurm ended the step: {end.value} ({end.evidence}); {_NO_FAULT[str(end.value)]}"


def by_node(facts: Iterable[Observation]) -> dict[str, list[Observation]]:
    nodes: dict[str, list[Observation]] = {}
    for fact in facts:
        nodes.setdefault(fact.node, []).append(fact)
    return nodes


def _equal(facts: list[Observation]) -> Iterable[list[Observation]]:
    """Group facts with one value and remark: nearly always all devices of a node, whose texts are read once."""
    if all(fact.value is facts[0].value and fact.why is facts[0].why for fact in facts):
        return [facts] if facts else []
    return grouped((f"{fact.value!r} {fact.why}", fact) for fact in facts).values()


def named(fact: Observation, why: str | None) -> str:
    """Write `mlx5_1:1: link_downed 23`."""
    device, at = fact.device, fact.quantity.partition("@")[2]
    if at:
        device = f"{at} {device or fact.node}"
    elif fact.quantity.startswith("inventory.folder."):
        device = fact.quantity.split(".")[2]
    return f"{device}: {why}" if device and why else device or why or ""


def as_is(derived: Parsed, gate: Gate, observed: Seen, run: Run) -> None:
    """Give every fact, at every size (NAME@SIZE), under the gate's name."""
    for fact in gate.fold.facts:
        for quantity, several in {fact: observed.of(fact), **observed.starting_with(f"{fact}@")}.items():
            name = gate.id + quantity.removeprefix(fact)
            derived.observations += [observation.model_copy(update={"quantity": name}) for observation in several]


def each(derived: Parsed, gate: Gate, observed: Seen, run: Run) -> None:
    """Give each different answer of a subject's devices once, with the devices that gave it.

    Absence is not equality: what all nodes lack is unknown; where most lack it, those that do are not alike."""
    values = [fact.value for fact in facts_of(gate, observed) if fact.value is not None]
    lacking = values.count(ABSENT)
    for group in groups(gate, observed, run):
        for equal in _equal(group.facts):
            first, names = equal[0], [named(fact, None) for fact in equal[:2]]
            kind = "GPUs" if names[0].lower().startswith("gpu") else "ranks"
            devices = ", ".join(names) if len(equal) <= 2 else f"{len(equal)} {kind}, the first is {names[0]}"
            value, why = first.value, f"{devices}: {first.why}" if devices and first.why else devices or first.why
            if value == ABSENT and lacking == len(values):
                value, why = None, "no node has it"
            elif value == ABSENT and lacking * 2 > len(values):
                value = f"{ABSENT} on {group.subject}"
            derived.saw(gate.id, group.subject, value, first.unit, first.evidence, why)
        _unknown(derived, gate, group, group.missing())


def worst(derived: Parsed, gate: Gate, observed: Seen, run: Run) -> None:
    """Give the number of the worst device: the least if the gate has a floor, else the greatest. 0 if none must be."""
    for group in groups(gate, observed, run):
        if group.numbers:
            _, fact = (min if gate.rule == "at_least" else max)(group.numbers, key=itemgetter(0))
            words = [named(fact, fact.why), *(f"{named(without, None)} has no such" for without in group.lacking)]
            why = first_few([*filter(None, words)]) or None
            derived.saw(gate.id, group.subject, fact.value, fact.unit, fact.evidence, why)
        elif group.counted is not None and group.counted.value == 0:
            derived.saw(gate.id, group.subject, 0, gate.unit, group.counted.evidence, "there is none")
        _unknown(derived, gate, group, group.silent())


def count(derived: Parsed, gate: Gate, observed: Seen, run: Run) -> None:
    """Give the sum over the devices; each that is true counts one. 0 is known only of all devices."""
    for group in groups(gate, observed, run):
        faulty, silence = [fact for number, fact in group.numbers if number], group.silent()
        if faulty or silence is None:
            words = first_few([named(fact, fact.why) for fact in faulty]) if faulty else group.facts[0].why
            if faulty and not any(fact.why for fact in faulty):
                words = f"on {words}"
            total = sum(int(number) for number, _ in group.numbers)
            derived.saw(gate.id, group.subject, total, "count", group.facts[0].evidence, words)
        else:
            _unknown(derived, gate, group, silence)


def against_peers(derived: Parsed, gate: Gate, observed: Seen, run: Run) -> None:
    """Give the worst device of a node as a share of what is usual for the worst devices of all nodes."""
    several = groups(gate, observed, run)
    peers = [min(number for number, _ in group.numbers) for group in several if group.numbers]
    _against(derived, gate, several, peers, "nodes", run)


def against_all(derived: Parsed, gate: Gate, observed: Seen, run: Run) -> None:
    """Give the worst device of a node as a share of what is usual for all devices of all nodes."""
    several = groups(gate, observed, run)
    _against(derived, gate, several, [number for group in several for number, _ in group.numbers], "devices", run)


def _against(derived: Parsed, gate: Gate, several: list[Group], peers: list[float], kind: str, run: Run) -> None:
    usual = median_high(peers) if peers else 0.0
    answered = sum(bool(group.numbers) for group in several)
    is_alone = len(peers) < 2 or (answered < 2 and len(run.nodes) > 1)  # it would be compared with itself
    whose = f"the better of 2 {kind} has" if len(peers) == 2 else f"the median of {len(peers)} {kind} is"
    for group in several:
        if group.numbers:
            least, fact = min(group.numbers, key=itemgetter(0))
            value = round(least / usual, 3) if usual > 0 and not is_alone else None
            words = ALONE if is_alone else named(fact, f"{least:.4g} {fact.unit}, {whose} {usual:.4g}")
            derived.saw(gate.id, group.subject, value, gate.unit, fact.evidence, words)
        _unknown(derived, gate, group, group.silent())


def _unknown(derived: Parsed, gate: Gate, group: Group, silence: tuple[str, str] | None) -> None:
    if silence is not None:
        derived.saw(gate.id, group.subject, None, gate.unit, *silence)


def alike(derived: Parsed, gate: Gate, observed: Seen, run: Run) -> None:
    """Count settings of a node, given as lists of NAME=VALUE, that are not those of most nodes."""
    values: dict[str, dict[str, str]] = {}
    silent: dict[str, Observation] = {}
    evidence: dict[str, str] = {}
    for fact in facts_of(gate, observed):
        evidence.setdefault(fact.subject, fact.evidence)
        if isinstance(fact.value, list):
            entries = (entry.rpartition("=") for entry in fact.value)
            values.setdefault(fact.subject, {}).update({name: value for name, _, value in entries})
        else:
            silent.setdefault(fact.subject, fact)
    settings = {node: known for node, known in values.items() if node not in silent}
    usual = _usual(settings)
    for node, fact in silent.items():
        derived.saw(gate.id, node, None, "count", fact.evidence, fact.why or "no list arrived")
    for node, known in settings.items():
        if len(settings) < 2 or not usual:
            why = ALONE if len(settings) < 2 else "no node has one"
            derived.saw(gate.id, node, None, "count", evidence[node], why)
            continue
        own = {name: known.get(name, ABSENT) for name in usual}
        different = [f"{name}: {own[name]}, {says}" for name, (value, says) in usual.items() if own[name] != value]
        why = first_few(different) if different else f"of {len(usual)} that were compared"
        derived.saw(gate.id, node, len(different), "count", evidence[node], why)


def _usual(settings: dict[str, dict[str, str]]) -> dict[str, tuple[str | None, str]]:
    """Name -> the value of most nodes, and its words. A setting that no node has is not compared."""
    usual: dict[str, tuple[str | None, str]] = {}
    for name in dict.fromkeys(name for known in settings.values() for name in known):
        counts = Counter(known.get(name, ABSENT) for known in settings.values())
        if set(counts) == {ABSENT}:
            continue
        value, number = counts.most_common(1)[0]
        none = (None, f"{len(counts)} different values and no majority")
        usual[name] = (value, f"{number} of {len(settings)} have {value}") if number * 2 > len(settings) else none
    return usual


Fold = Callable[[Parsed, Gate, Seen, Run], None]
ALL: tuple[Fold, ...] = (as_is, each, worst, count, against_peers, against_all, alike)
FOLDS = {fold.__name__.replace("_", "-"): fold for fold in ALL}
