"""Checks of a site: a file of the same form as validation/checks/*.yaml, with a command that each node runs.

They are planned for discovery. The run's folder keeps them, so that it can be judged anywhere.
"""

import re
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from bringup.kernel.errors import FileError
from bringup.kernel.plan import catalogue
from bringup.kernel.plan.gate import Fixed, Fold, Gate

CLAIM = "own-checks"
_SHARED = {"phases": ["discovery"], "per": "node", "claims": [CLAIM], "stops": []}
_ID = re.compile(r"site(\.[a-z0-9_]+)+")
_GATES = TypeAdapter(list[Gate])


def read(path: Path) -> list[Gate]:
    """Read a site's own checks from a file. Raises FileError."""
    gates = catalogue.read(path, _SHARED)
    for gate in gates:
        if (lack := _lack(gate)) is not None:
            raise FileError(f"{path}: {gate.id}: {lack}")
    return gates


def _lack(gate: Gate) -> str | None:
    if _ID.fullmatch(gate.id) is None:
        return "an id of a site's own check is site.NAME, in small letters"
    if not gate.command:
        return "needs `command`: bash that each node runs"
    if gate.fold != Fold():
        return "its value is what the command says: it has no `from`"
    if (gate.phases, gate.per, gate.claims, gate.bears_on, gate.stops) != (("discovery",), "node", (CLAIM,), (), ()):
        return "phases, per, claims and stops of a site's own check are given: discovery, node, own-checks, nothing"
    if not isinstance(gate.expect, Fixed) and gate.expect != "fleet":
        return "its rule needs a limit of its own, or `fleet`: a profile has no number for it"
    return None


def dump(gates: list[Gate]) -> str:
    return _GATES.dump_json(gates, indent=1, exclude_defaults=True).decode() + "\n"


def parse(text: str, where: str) -> dict[str, Gate]:
    """Parse those that a run planned, by their ids. Raises FileError."""
    try:
        gates = _GATES.validate_json(text)
    except ValidationError as error:
        raise FileError(f"{where}: cannot be read: {str(error).splitlines()[0]}") from error
    for gate in gates:  # the folder may be another one's
        if (lack := _lack(gate)) is not None:
            raise FileError(f"{where}: {gate.id}: {lack}")
    return {gate.id: gate for gate in gates}
