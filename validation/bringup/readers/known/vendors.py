"""What vendors document: the right values of a node's settings, known faults of installed versions; and variables that
pin a choice or that NCCL does not read (validation/known/right_values.yaml, version_faults.yaml, pinned_variables.yaml,
nccl_variables.yaml). Beyond them nothing is said."""

import re
from collections.abc import Collection, Mapping
from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Literal

from pydantic import Field, field_validator

from bringup.kernel.records import Record, known

HIDDEN = "not readable by users"  # as the probe says it (probes/devices.py)
NOT_KNOWN = ("not supported", "unknown", "")  # what a device answers that has no such setting, or a new one
Trait = Literal["gpus", "rdma", "RoCE", "bare metal", "x86", "arm"]
Traits = Mapping[Trait, bool | None]  # of a node. None: not known
Component = Literal["NCCL", "driver", "NIC firmware", "torch", "transformers", "accelerate", "Slurm"]
_NUMBERS = re.compile(r"\d+(\.\d+)*")
_RANGE = re.compile(rf"{_NUMBERS.pattern}( \.\. {_NUMBERS.pattern})?")


def _all(held: Collection[bool | None]) -> bool | None:
    """Say whether all hold. None: one that decides is not known."""
    return False if False in held else None if None in held else True


class RightValue(Record):
    name: str
    right: str  # of the whole value of a device
    where: list[Trait]
    harm: str
    cure: str
    source: str

    def applies(self, traits: Traits) -> bool | None:
        """Say whether it is asked of a node with these traits. None: one that decides is not known."""
        return _all([traits.get(trait) for trait in self.where])

    def is_of(self, values: Collection[str]) -> bool:
        return all(re.fullmatch(self.right, each) for each in values)


class PinnedVariable(Record):
    name: str  # a regular expression, too
    wrong: str  # of the whole value
    harm: str
    source: str


class NcclVariables(Record):
    source: str
    others: list[str]  # regular expressions of names that something else reads
    names: list[str]


class VersionFault(Record):
    component: Component
    versions: list[str]  # `2.27.3 .. 2.28.7`: below the second one; or one alone
    where: list[Trait] = Field(default_factory=list)
    gpu: str = ""
    hits: str
    avoid: str
    source: str

    @field_validator("versions")
    @classmethod
    def _are_ranges(cls, versions: list[str]) -> list[str]:
        if wrong := [text for text in versions if not _RANGE.fullmatch(text)]:
            raise ValueError(f"{wrong[0]!r} is neither a version nor two with .. between them")
        return versions

    def applies(self, traits: Traits, models: Collection[str] | None) -> bool | None:
        """Say whether it hits such a node. None: what decides is not known."""
        is_its_gpu = None if models is None else any(re.search(self.gpu, model) for model in models)
        return _all([*map(traits.get, self.where), *([is_its_gpu] if self.gpu else [])])

    def has(self, version: str) -> bool:
        """Say whether it is a fault of this version, whatever stands behind its numbers (2.13.0+cpu)."""
        own = _numbers(version)
        ranges = ([_numbers(end) for end in text.split(" .. ")] for text in self.versions)
        return bool(own) and any(ends[0] <= own < ends[1] if len(ends) == 2 else own == ends[0] for ends in ranges)


def _numbers(version: str) -> tuple[int, ...]:
    begin = _NUMBERS.match(version)
    return tuple(map(int, begin[0].split("."))) if begin else ()


@cache
def right_values() -> list[RightValue]:
    return known("right_values", list[RightValue])


@cache
def version_faults() -> list[VersionFault]:
    return known("version_faults", list[VersionFault])


def none_applies(traits: Traits) -> bool:
    return all(setting.applies(traits) is False for setting in right_values())


def look_at(settings: Mapping[str, str], traits: Traits) -> tuple[list[str], list[str], list[str]]:
    """Return (sentences about wrong values, names that are right, names that a user may not read) of one node."""
    wrong, right, hidden = list[str](), list[str](), list[str]()
    for setting in right_values():
        value = settings.get(setting.name)
        if value is None or not setting.applies(traits):
            continue
        devices = [each for each in value.split("+") if each not in NOT_KNOWN]  # where they differ, each value once
        seen = [each for each in devices if each != HIDDEN]
        if not seen and devices:
            hidden.append(setting.name)
        elif seen and setting.is_of(seen):
            right.append(setting.name)
        elif seen:
            wrong.append(f"{setting.name} is {value}: {setting.harm}; set it: {setting.cure} ({setting.source})")
    return wrong, right, hidden


def faults(component: str, version: str, traits: Traits, models: Collection[str] | None) -> tuple[list[str], list[str]]:
    """Return (a sentence about each fault of what a node has installed, the same of faults of which nobody can say
    whether they hit this node). models: of its GPUs; None: not known."""
    says: dict[bool | None, list[str]] = {True: [], None: [], False: []}
    for fault in _faults_of(component, version):
        words = f"{component} {version}: {fault.hits}; avoid it: {fault.avoid} ({fault.source})"
        says[fault.applies(traits, models)].append(words)
    return says[True], says[None]


@lru_cache(maxsize=1024)
def _faults_of(component: str, version: str) -> list[VersionFault]:
    return [fault for fault in version_faults() if fault.component == component and fault.has(version)]


def pinned(environment: Mapping[str, str]) -> list[str]:
    """Say of each variable that pins a choice, or changes what is computed, what it does; and of one of NCCL that it
    does not read, or does not read so."""
    variables = known("pinned_variables", list[PinnedVariable])
    of_nccl = [name.removeprefix("NCCL_") for name in sorted(environment) if name.startswith("NCCL_")]
    return [
        f"{name}={value}: {each.harm} ({each.source})"
        for name, value in sorted(environment.items())
        for each in variables
        if re.fullmatch(each.name, name) and re.fullmatch(each.wrong, value)
    ] + [f"NCCL_{name}: NCCL reads none so called; NCCL_{near} is one" for name in of_nccl if (near := _meant(name))]


def _meant(name: str) -> str | None:
    """Return the variable of NCCL that a misspelled one is near to. None: it is read, or may be of another program."""
    variables = known("nccl_variables", NcclVariables)
    if name in variables.names or any(re.fullmatch(other, name) for other in variables.others):
        return None
    return next(iter(get_close_matches(name, variables.names, 1, 0.8)), None)
