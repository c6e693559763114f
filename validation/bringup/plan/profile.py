"""A profile says what is expected on one kind of cluster, each number with its unit and its source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, ValidationError, model_validator

from bringup.errors import ProfileError
from bringup.plan import profile_text
from bringup.plan.gate import FromProfile, Gate
from bringup.plan.rules import DECLARABLE, allowed
from bringup.records import NotApplicable, Record

PROFILES = Path(__file__).resolve().parents[2] / "profiles"
DEFAULT = "generic"


class Expectation(Record):
    """Exactly one comparison, its unit, and where the number comes from."""

    equals: bool | int | float | str | None = None
    at_least: float | None = None
    at_most: float | None = None
    between: list[float] | None = Field(default=None, min_length=2, max_length=2)
    one_of: list[str] | None = Field(default=None, min_length=1)
    near_peers: float | None = Field(
        default=None, gt=0, lt=1
    )  # share of the fleet's median that a subject may lie below it
    at: str | None = None  # the named size this holds for: 16MiB
    from_nodes: dict[int, float] | None = None  # from so many nodes on, this floor or ceiling instead
    unit: str
    source: str = Field(min_length=3)

    @model_validator(mode="after")
    def _exactly_one(self) -> Expectation:
        named = [rule for rule in DECLARABLE if getattr(self, rule) is not None]
        if len(named) != 1:
            raise ValueError(f"needs exactly one of {', '.join(DECLARABLE)}; found {', '.join(named) or 'none'}")
        if self.from_nodes and named[0] not in ("at_least", "at_most"):
            raise ValueError(f"from_nodes goes with at_least or at_most, not with {named[0]}")
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError(f"between: {self.between[0]:g} is more than {self.between[1]:g}; give [low, high]")
        return self

    @property
    def rule(self) -> str:
        return next(rule for rule in DECLARABLE if getattr(self, rule) is not None)

    @property
    def expected(self) -> Any:
        """For any number of nodes; see `limit`."""
        return getattr(self, self.rule)

    def limit(self, nodes: int) -> Any:
        """For this number of nodes."""
        reached = {count: limit for count, limit in (self.from_nodes or {}).items() if count <= nodes}
        return reached[max(reached)] if reached else self.expected


class Sourced(Record):
    """A number that nothing is judged by, and where it comes from."""

    value: float = Field(gt=0)
    source: str = Field(min_length=3)


class Machine(Record):
    """What `bringup advise` has to know of a GPU. Absent: what depends on it is unknown."""

    gpu_memory_gib: Sourced | None = None  # what PyTorch can allocate from, context included
    peak_bf16_tflops: Sourced | None = None  # dense
    mfu: Sourced | None = None  # assumed, full-attention convention


class Profile(Record):
    """`validation/profiles/<name>.yaml`. `extends` names a profile whose entries this one adds to or replaces."""

    schema_version: Literal[1]
    name: str
    description: str = Field(min_length=1)
    extends: str | None = None
    expect: dict[str, Expectation] = Field(default_factory=dict)  # gate id -> expectation
    not_applicable: list[NotApplicable] = Field(default_factory=list)
    machine: Machine = Machine()

    def reason_not_applicable(self, gate: str) -> str | None:
        return next((entry.reason for entry in self.not_applicable if entry.gate == gate), None)


def find(name_or_path: str) -> Path:
    """The file of a profile given by name (`local-cpu`) or by path. Raises ProfileError with the names there are."""
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise ProfileError(f"profile {path}: no such file")
        return path
    path = PROFILES / f"{name_or_path}.yaml"
    if "/" in name_or_path or not path.is_file():
        names = ", ".join(sorted(file.stem for file in PROFILES.glob("*.yaml")))
        raise ProfileError(f"no profile named {name_or_path!r}; there are {names}; or give the path of a .yaml file")
    return path


def portable(name_or_path: str) -> str:
    """The same profile named from any folder: jobs start in the repository root."""
    path = find(name_or_path)
    return name_or_path if path.parent == PROFILES and path.stem == name_or_path else str(path.resolve())


def load(name_or_path: str) -> Profile:
    """The profile with everything it extends merged in. Raises ProfileError."""
    return _resolve(find(name_or_path), ())


def parse(text: str, where: str) -> Profile:
    """One profile text, `extends` left as it is. Raises ProfileError."""
    data = profile_text.read(text, where)
    try:
        return Profile.model_validate(data)
    except ValidationError as error:
        raise ProfileError(f"{where}: {profile_text.in_words(error.errors()[0], Profile)}") from error


def _resolve(path: Path, seen: tuple[str, ...]) -> Profile:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"profile {path}: cannot be read: {error}") from error
    profile = parse(text, str(path))
    if profile.extends is None:
        return profile
    if profile.name in seen:
        raise ProfileError(f"{path}: extends itself through {' -> '.join(seen)}")
    # a path in `extends` is relative to the file that says it
    extends = profile.extends if not profile.extends.endswith((".yaml", ".yml")) else str(path.parent / profile.extends)
    base = _resolve(find(extends), (*seen, profile.name))
    own = {entry.gate for entry in profile.not_applicable}
    return profile.model_copy(
        update={
            "extends": None,
            # what this profile expects again is applicable again
            "expect": {gate: e for gate, e in base.expect.items() if gate not in own} | profile.expect,
            "not_applicable": [
                *(entry for entry in base.not_applicable if entry.gate not in own | set(profile.expect)),
                *profile.not_applicable,
            ],
            "machine": base.machine.model_copy(
                update={name: known for name, known in profile.machine if known is not None}
            ),
        }
    )


def dump(profile: Profile) -> str:
    """The resolved profile as YAML: it goes into the run's folder, so that a copied run is judged the same anywhere."""
    return yaml.safe_dump(profile.model_dump(exclude_none=True), sort_keys=False, allow_unicode=True)


def from_environment() -> str:
    """The profile to use when none is named: $BRINGUP_PROFILE, else `generic`."""
    return os.environ.get("BRINGUP_PROFILE") or DEFAULT


def check(profile: Profile, gates: Mapping[str, Gate]) -> None:
    """Refuse what it says of a gate that does not exist, in another unit than the gate's, or in another direction. A
    profile gives numbers, never rules. Raises ProfileError."""
    unknown = sorted({*profile.expect, *(entry.gate for entry in profile.not_applicable)} - set(gates))
    if unknown:
        near = profile_text.meant(unknown[0], gates)
        raise ProfileError(
            f"profile {profile.name}: no gate is called {', '.join(unknown)}{near}; `bringup gates` lists them"
        )
    for gate_id, entry in profile.expect.items():
        gate = gates[gate_id]
        if entry.unit != gate.unit:
            raise ProfileError(
                f"profile {profile.name}: {gate_id} is declared in {entry.unit}, the gate is in {gate.unit}"
            )
        if not isinstance(gate.expect, FromProfile):
            raise ProfileError(f"profile {profile.name}: {gate_id} takes no number from a profile; remove it")
        if not allowed(gate.rule, entry.rule):
            raise ProfileError(
                f"profile {profile.name}: {gate_id} is declared as {entry.rule}, the gate is {gate.rule}: "
                "a profile gives the number, the gate gives the direction"
            )
