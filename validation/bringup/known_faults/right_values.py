"""Settings whose right value a vendor documents (validation/known/right_values.yaml)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import yaml
from pydantic import TypeAdapter

from bringup.records import Record

FILE = Path(__file__).resolve().parents[2] / "known/right_values.yaml"
HIDDEN = "not readable by users"  # as the probe says it (probes/devices.py)
Trait = Literal["gpus", "rdma", "bare metal", "x86"]


class RightValue(Record):
    name: str
    right: str  # of the whole value, which of several devices has a + between them
    where: list[Trait]
    harm: str
    cure: str
    source: str

    def is_of(self, value: str) -> bool:
        return all(re.fullmatch(self.right, each) for each in value.split("+"))


@cache
def table() -> list[RightValue]:
    return TypeAdapter(list[RightValue]).validate_python(yaml.safe_load(FILE.read_text(encoding="utf-8")))


def look_at(settings: Mapping[str, str], traits: Collection[Trait]) -> tuple[list[str], list[str], list[str]]:
    """Return (sentences about wrong values, names that are right, names that a user may not read) of one node."""
    wrong, right, hidden = list[str](), list[str](), list[str]()
    for known in table():
        value = settings.get(known.name)
        if value is None or not set(known.where) <= set(traits):
            continue
        if value == HIDDEN:
            hidden.append(known.name)
        elif known.is_of(value):
            right.append(known.name)
        else:
            wrong.append(f"{known.name} is {value}: {known.harm}; set it: {known.cure} ({known.source})")
    return wrong, right, hidden
