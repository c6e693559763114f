"""Kinds of faults: which one a check fails for, by its statements, and of which parts of a node hours are counted."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import cache
from typing import Literal

from pydantic import Field

from bringup.kernel.errors import UsageError
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.records import Record, known
from bringup.verb import positive


class Kind(Record):
    counts: Literal["GPU", "NIC", "node"]
    statements: list[str]
    checks: list[str] = Field(default_factory=list)  # patterns of ids, before the statements


KINDS = known("fault_kinds", dict[str, Kind])
OTHER = "node"  # of a check that no kind names, such as a site's own


@cache
def kind_of(gate: str) -> str:
    named = [kind for kind, of in KINDS.items() if any(fnmatchcase(gate, pattern) for pattern in of.checks)]
    check = GATES.get(gate)
    statements = () if check is None else (*check.claims, *check.bears_on)
    named += [kind for statement in statements for kind, of in KINDS.items() if statement in of.statements]
    return named[0] if named else OTHER


def bounds(texts: Sequence[str]) -> dict[str, float]:
    """Read KIND=HOURS. Raises UsageError."""
    asked: dict[str, float] = {}
    for text in texts:
        name, _, hours = text.partition("=")
        kind = next((kind for kind in KINDS if kind.lower() == name.strip().lower()), None)
        try:
            if kind is None:
                raise ValueError(f"there are {', '.join(KINDS)}")
            asked[kind] = positive(hours)
        except Exception as error:
            raise UsageError(f"--until {text}: expected KIND=HOURS, as GPU=1000; {error}") from error
    return asked
