"""A profile: the expected numbers of one kind of cluster, each with its unit and its source."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from pydantic import BeforeValidator, Field, ValidationError

from bringup.kernel.characters import many
from bringup.kernel.errors import FileError
from bringup.kernel.plan import ceiling, profile_text, transports
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.ceiling import Machine
from bringup.kernel.plan.expectation import Applied, Expectation
from bringup.kernel.plan.gate import Gate
from bringup.kernel.plan.rules import allowed
from bringup.kernel.records import NotApplicable, Record

AUTO = "auto"  # its numbers come with a discovery (domains/auto.py)
PROFILES = Path(__file__).resolve().parents[3] / "profiles"
SITE_SUFFIX = ".site.yaml"  # in the same folder: files of a site (run/site_file.py), which are not profiles


class Workload(Record):
    """The workload of phases 4 to 6, unless BRINGUP_TRAIN_ARGS gives another: the same for all, at any number of
    ranks."""

    arguments: str = Field(pattern=r"^[\w./=-]+( [\w./=-]+)*$")  # options of the training programs, split at spaces
    source: str = Field(min_length=3)


class Excluded(Record):
    """What has no meaning in this profile: a gate, a pattern of names with `*`, or a list of both; except some."""

    gate: Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]
    except_: list[str] = Field(default_factory=list, alias="except")
    reason: str = Field(min_length=1)


class Profile(Record):
    """`validation/profiles/<name>.yaml`. `extends` names profiles; each adds to or replaces the entries of those before
    it, and this one comes last."""

    schema_version: Literal[1]
    name: str
    description: str = Field(min_length=1)
    extends: str | Annotated[list[str], Field(min_length=1)] | None = None
    expect: dict[str, Expectation] = Field(default_factory=dict)  # gate id -> expectation
    not_applicable: list[NotApplicable] = Field(default_factory=list)
    machine: Machine = Machine()
    workload: Workload | None = None  # None: the tiny model, which shows that the strategies work
    recognised: str | None = None  # of `auto` after a discovery: what its numbers are of (domains/auto.py)
    own: Profile | None = None  # of one that extends `auto`: what it says itself

    @property
    def is_open(self) -> bool:
        """Say whether it is `auto`, or one that extends it, before a discovery."""
        return self.recognised is None and (self.name == AUTO or self.own is not None)

    @property
    def closed(self) -> Profile | None:
        """Return the profile that runs are judged with. None: each with its own copy, because a discovery makes it."""
        return None if self.is_open else self

    def reason_not_applicable(self, gate: str) -> str | None:
        return next((entry.reason for entry in self.not_applicable if entry.gate == gate), None)

    def limit(self, gate: str, nodes: int, gpus_per_node: int | None = None) -> Applied:
        """Return the limit of a gate on this number of nodes, with this number of GPUs in use on each."""
        entry = self.expect.get(gate)
        if entry is None:
            return Applied(None, f"profile {self.name} declares no {gate}")
        applied = entry.limit(gate, self.machine, nodes, gpus_per_node)
        if applied.value is None:
            return Applied(None, f"profile {self.name} gives no {gate} on {many(nodes, 'node')}: {applied.why}")
        return applied


class _File(Profile):
    not_applicable: list[Excluded] = Field(default_factory=list)  # type: ignore[assignment]


def names() -> list[str]:
    """Return the names of the profiles that this project ships, and of those that were put beside them."""
    return sorted(file.stem for file in PROFILES.glob("*.yaml") if not file.name.endswith(SITE_SUFFIX))


def find(name_or_path: str) -> Path:
    """Find a profile's file by its name (`local-cpu`) or path. Raises FileError with the names there are."""
    return profile_text.find(name_or_path, "profile", {name: PROFILES / f"{name}.yaml" for name in names()})


def portable(name_or_path: str) -> str:
    """Return the same profile named from any folder: jobs start in the repository root."""
    path = find(name_or_path)
    return name_or_path if path.parent == PROFILES and path.stem == name_or_path else str(path.resolve())


def load(name_or_path: str, *, strict: bool = True) -> Profile:
    """Load the profile with everything it extends merged in. strict: check it against all gates, before anything runs.
    Raises FileError."""
    path = find(name_or_path)
    profile = _resolve(path, (), strict)
    if strict:
        check(profile, str(path))
    return profile


def parse(text: str, where: str, *, strict: bool = True) -> Profile:
    """Parse one profile text, `extends` left as it is. strict: it may name no gate that this version does not know.
    Raises FileError: file, line, key, and what was meant."""
    try:
        file = _File.model_validate(profile_text.read(text, where))
    except ValidationError as error:
        raise profile_text.refused(error, _File, text, where) from error
    for wrong in [*_wrong_words(file), *((*_of_no_gate(file), *_against(file.expect)) if strict else ())]:
        raise FileError(f"{where}:{profile_text.line_of(text, wrong.at)}: {wrong}")
    return Profile(**{**dict(file), "not_applicable": _each_gate(file.not_applicable)})


def _each_gate(entries: Iterable[Excluded]) -> list[NotApplicable]:
    """Return an entry for each gate. What names a gate counts more than what matches it."""
    named = sorted(((name, entry) for entry in entries for name in entry.gate), key=lambda each: "*" not in each[0])
    reasons = {gate: entry.reason for name, entry in named for gate in _called(name) if gate not in entry.except_}
    return [NotApplicable(gate=gate, reason=reason) for gate, reason in reasons.items()]


def _called(name: str) -> list[str]:
    return [gate for gate in GATES if fnmatchcase(gate, name)] if "*" in name else [name]


def _resolve(path: Path, chain: tuple[str, ...], strict: bool) -> Profile:
    profile = parse(profile_text.text_of(path, "profile "), str(path), strict=strict)
    if profile.name in chain:
        raise FileError(f"{path}: extends itself through {' -> '.join(chain)}")
    return resolved(profile, path.parent, chain, strict=strict)


def resolved(profile: Profile, folder: Path, chain: tuple[str, ...] = (), *, strict: bool) -> Profile:
    """Return the profile with what it extends merged in. folder: of its file. Raises FileError."""
    if profile.extends is None:
        return profile
    bases = []
    for name in [profile.extends] if isinstance(profile.extends, str) else profile.extends:
        # a path in `extends` is relative to the file that says it
        extended = name if not name.endswith((".yaml", ".yml")) else str(folder / name)
        bases.append(_resolve(find(extended), (*chain, profile.name), strict))
    return functools.reduce(over, [*bases, profile])


def over(base: Profile, profile: Profile) -> Profile:
    """Return `base` with what `profile` says in place of what it said."""
    own = profile.model_copy(update={"extends": None})
    not_applicable = {entry.gate for entry in profile.not_applicable}
    kept = [entry for entry in base.not_applicable if entry.gate not in not_applicable | set(profile.expect)]
    numbers = {name: known for name, known in profile.machine if known is not None}
    return profile.model_copy(
        update={
            "extends": None,
            # what this profile expects again is applicable again
            "expect": {gate: e for gate, e in base.expect.items() if gate not in not_applicable} | profile.expect,
            "not_applicable": [*kept, *profile.not_applicable],
            "machine": base.machine.model_copy(update=numbers),
            "workload": profile.workload or base.workload,
            "recognised": profile.recognised or base.recognised,
            "own": None if not base.is_open else own if base.own is None else over(base.own, own),
        }
    )


def dump(profile: Profile) -> str:
    """Return the resolved profile as YAML. In the run's folder it judges a copied run the same anywhere."""
    return profile_text.dump(profile.model_dump(exclude_none=True))


def check(profile: Profile, where: str = "") -> None:
    """Check a profile with all that it extends. Raises FileError."""
    for wrong in [*_against(profile.expect), *([] if profile.own else _without_a_ceiling(profile))]:
        raise FileError(f"{where or f'profile {profile.name}'}: {wrong}")


# --- what is wrong with it


class _Wrong(NamedTuple):
    at: tuple[str | int, ...]  # the key
    says: str

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.at))}: {self.says}"


def _wrong_words(profile: Profile) -> Iterator[_Wrong]:
    """Texts that no gate can observe, for example a name that NCCL prints instead of a class of transport."""
    for gate in transports.GATES:
        entry = profile.expect.get(gate)
        for place, text in enumerate(entry.one_of or () if entry is not None else ()):
            if (why := transports.why_not(text)) is not None:
                yield _Wrong(("expect", gate, "one_of", place), why)


def _of_no_gate(file: _File) -> Iterator[_Wrong]:
    """Names in what is not applicable that no gate has, patterns that match none, exceptions from nothing."""
    for place, entry in enumerate(file.not_applicable):
        known, at = {gate for name in entry.gate for gate in _called(name)}, ("not_applicable", place)
        for index, name in enumerate(entry.gate):
            if GATES.keys().isdisjoint(_called(name)):
                yield _Wrong((*at, "gate", index), _no_gate(name))
        for index, name in enumerate(entry.except_):
            if name not in known:
                yield _Wrong((*at, "except", index), f"this entry names no {name}, which it excepts")


def _no_gate(name: str) -> str:
    return f"no gate is called {name}{profile_text.meant(name, GATES)}; `bringup gates` lists them"


def _against(expect: Mapping[str, Expectation]) -> Iterator[_Wrong]:
    """Entries for a gate that does not exist, in another unit, or in another direction than the gate's. A profile gives
    numbers, never rules."""
    for gate_id, entry in expect.items():
        if gate_id in GATES:
            yield from _entry_against(GATES[gate_id], entry)
        else:
            yield _Wrong(("expect", gate_id), _no_gate(gate_id))


def _entry_against(gate: Gate, entry: Expectation) -> Iterator[_Wrong]:
    at: tuple[str, ...] = ("expect", gate.id)
    if gate.expect != "profile":
        yield _Wrong(at, f"{gate.id} takes no number from a profile; remove it")
    elif entry.unit != gate.unit:
        says = f"{entry.unit} is not the unit of {gate.id}: give the number in {gate.unit} and write that"
        yield _Wrong((*at, "unit"), says)
    elif not allowed(gate.rule, entry.rule):
        says = f"{gate.id} is declared as {entry.rule}, the gate is {gate.rule}"
        yield _Wrong((*at, entry.rule), f"{says}: a profile gives the number, the gate gives the direction")
    elif entry.shares and gate.id not in ceiling.OF_GATE:
        yield _Wrong(at, f"{gate.id} has no ceiling; share_of_ceiling goes with {', '.join(ceiling.OF_GATE)}")
    elif entry.equals is not None:
        kind = {"flag": "true or false", "text": "a text"}.get(gate.unit, "a number")
        given = {bool: "true or false", str: "a text"}.get(type(entry.equals), "a number")
        if given != kind:
            yield _Wrong((*at, "equals"), f"{entry.equals!r} is not {kind}, and {gate.id} is in {gate.unit}")


def _without_a_ceiling(profile: Profile) -> Iterator[_Wrong]:
    for gate, entry in profile.expect.items():
        lacking = ceiling.missing(gate, profile.machine) if entry.shares and gate in ceiling.OF_GATE else []
        if lacking:
            yield _Wrong(("expect", gate), f"share_of_ceiling needs machine.{', machine.'.join(lacking)}")
