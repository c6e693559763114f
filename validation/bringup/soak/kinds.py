"""Kinds of faults: which one a check fails for, by its statements, and of which parts of a node hours are counted."""

from argparse import ArgumentTypeError
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


@cache
def kind_of(gate: str) -> str:
    named = [kind for kind, of in KINDS.items() if any(fnmatchcase(gate, pattern) for pattern in of.checks)]
    check = GATES.get(gate)
    statements = () if check is None else (*check.claims, *check.bears_on)
    named += [kind for statement in statements for kind, of in KINDS.items() if statement in of.statements]
    return named[0] if named else "node"  # a check that no kind names, such as a site's own


def bounds(texts: Sequence[str]) -> dict[str, float]:
    """Read KIND=HOURS. Raises UsageError."""
    asked: dict[str, float] = {}
    for text in texts:
        name, _, hours = text.partition("=")
        try:
            (kind,) = (kind for kind in KINDS if kind.lower() == name.strip().lower())
            asked[kind] = positive(hours)
        except (ValueError, ArgumentTypeError) as error:
            expected = f"expected KIND=HOURS, as GPU=1000; kinds are {', '.join(KINDS)}"
            raise UsageError(f"--until {text}: {expected}") from error
    return asked
