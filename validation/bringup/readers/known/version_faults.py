"""Known faults of installed versions (validation/known/version_faults.yaml). Beyond the table nothing is said."""

import re
from collections.abc import Collection, Mapping
from functools import cache
from typing import Literal

from pydantic import Field, field_validator

from bringup.kernel.records import Record, known
from bringup.readers.known import right_values

Component = Literal["NCCL", "driver", "NIC firmware", "torch", "transformers", "accelerate", "Slurm"]
_NUMBERS = re.compile(r"\d+(\.\d+)*")
_RANGE = re.compile(rf"{_NUMBERS.pattern}( \.\. {_NUMBERS.pattern})?")


class VersionFault(Record):
    component: Component
    versions: list[str]  # `2.27.3 .. 2.28.7`: below the second one; or one alone
    where: list[right_values.Trait] = Field(default_factory=list)
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

    def applies(self, traits: Mapping[right_values.Trait, bool | None], models: Collection[str] | None) -> bool | None:
        """Say whether it hits such a node. None: what decides is not known."""
        held = [traits.get(trait) for trait in self.where]
        if self.gpu:
            held.append(None if models is None else any(re.search(self.gpu, model) for model in models))
        return False if False in held else None if None in held else True

    def has(self, version: str) -> bool:
        """Say whether it is a fault of this version, whatever stands behind its numbers (2.13.0+cpu)."""
        own = _numbers(version)
        ranges = ([_numbers(end) for end in text.split(" .. ")] for text in self.versions)
        return bool(own) and any(ends[0] <= own < ends[1] if len(ends) == 2 else own == ends[0] for ends in ranges)


def _numbers(version: str) -> tuple[int, ...]:
    begin = _NUMBERS.match(version)
    return tuple(map(int, begin[0].split("."))) if begin else ()


@cache
def table() -> list[VersionFault]:
    return known("version_faults", list[VersionFault])


def of(
    component: str, version: str, traits: Mapping[right_values.Trait, bool | None], models: Collection[str] | None
) -> tuple[list[str], list[str]]:
    """Return (a sentence about each fault of what a node has installed, the same of faults of which nobody can say
    whether they hit this node). models: of its GPUs; None: not known."""
    of_version = [fault for fault in table() if fault.component == component and fault.has(version)]
    sure, unsure = (
        [
            f"{component} {version}: {fault.hits}; avoid it: {fault.avoid} ({fault.source})"
            for fault in of_version
            if fault.applies(traits, models) is applies
        ]
        for applies in (True, None)
    )
    return sure, unsure
