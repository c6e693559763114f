"""Settings whose right value a vendor documents, and variables that pin a choice (validation/known)."""

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Literal

from bringup.kernel.records import Record, known

HIDDEN = "not readable by users"  # as the probe says it (probes/devices.py)
NOT_KNOWN = ("not supported", "unknown", "")  # what a device answers that has no such setting, or a new one
Trait = Literal["gpus", "rdma", "RoCE", "bare metal", "x86", "arm"]


class RightValue(Record):
    name: str
    right: str  # of the whole value of a device
    where: list[Trait]
    harm: str
    cure: str
    source: str

    def applies(self, traits: Mapping[Trait, bool | None]) -> bool | None:
        """Say whether it is asked of a node with these traits. None: one that decides is not known."""
        held = [traits.get(trait) for trait in self.where]
        return False if False in held else None if None in held else True

    def is_of(self, values: Collection[str]) -> bool:
        return all(re.fullmatch(self.right, each) for each in values)


class PinnedVariable(Record):
    name: str  # a regular expression, too
    wrong: str  # of the whole value
    harm: str
    source: str


@cache
def table() -> list[RightValue]:
    return known("right_values", list[RightValue])


def none_applies(traits: Mapping[Trait, bool | None]) -> bool:
    return all(setting.applies(traits) is False for setting in table())


def look_at(settings: Mapping[str, str], traits: Mapping[Trait, bool | None]) -> tuple[list[str], list[str], list[str]]:
    """Return (sentences about wrong values, names that are right, names that a user may not read) of one node."""
    wrong, right, hidden = list[str](), list[str](), list[str]()
    for setting in table():
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


def pinned(environment: Mapping[str, str]) -> list[str]:
    """Say of each variable that pins a choice, or changes what is computed, what it does."""
    variables = known("pinned_variables", list[PinnedVariable])
    return [
        f"{name}={value}: {each.harm} ({each.source})"
        for name, value in sorted(environment.items())
        for each in variables
        if re.fullmatch(each.name, name) and re.fullmatch(each.wrong, value)
    ]
