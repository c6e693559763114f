"""The catalogue: the checks of validation/checks/*.yaml, read once. One more gate is one more entry in a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ConfigDict, Field

from bringup.kernel.errors import FileError
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan import profile_text
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.drill import Drill
from bringup.kernel.plan.gate import Gate
from bringup.kernel.plan.rules import RULES
from bringup.kernel.records import Action, Record

CHECKS = Path(__file__).resolve().parents[3] / "checks"
FILES = (
    "run", "node", "alike", "gpu", "compute", "fabric", "slurm", "jobs", "filesystem", "sweep", "load", "nccl",
    "interconnect", "pairs", "ranks", "training", "checkpoints", "pace",
)  # fmt: skip
"""In the order of reports."""

T = TypeVar("T", Gate, Drill)
Fields = dict[str, Any]


class _Defaults(Record):
    """Fields of every check, or of every drill, that does not give its own."""

    model_config = ConfigDict(extra="allow")
    drill: Fields = Field(default_factory=dict)


class _Check(Record):
    model_config = ConfigDict(extra="allow")
    drills: dict[str, Fields] = Field(default_factory=dict)


class _Section(Record):
    """The checks of one section of docs/."""

    title: str
    page: str | None = None
    action: Action
    next: tuple[str, ...] = ()
    defaults: _Defaults = _Defaults()
    checks: dict[str, _Check]


class _File(Record):
    page: str | None = None  # of the sections that name no other
    defaults: _Defaults = _Defaults()
    sections: tuple[_Section, ...]


def read(path: Path, shared: Fields | None = None) -> list[Gate]:
    """Read the checks of a file, in its order. shared: fields of each check that gives no other. Raises FileError."""
    text = profile_text.text_of(path)
    data = profile_text.read(text, str(path), "a file of checks", "page, defaults and sections")
    file = profile_text.valid(_File, data, text, str(path))
    gates = []
    for number, section in enumerate(file.sections):
        page = section.page or file.page or str(path)
        guide = section.model_dump(include={"title", "action", "next"}) | {"page": page}
        defaults = (shared or {}) | (file.defaults.model_extra or {}) | (section.defaults.model_extra or {})
        for id, check in section.checks.items():
            fields = {**defaults, **(check.model_extra or {}), "id": id, "guide": guide}
            fields["drills"] = {
                name: {**_same(fields), **file.defaults.drill, **section.defaults.drill, **own, "id": name, "gate": id}
                for name, own in check.drills.items()
            }
            place = ("sections", number, "checks", id)
            rules = [rule for rule in RULES if rule in fields]
            if len(rules) != 1:
                line, given = profile_text.line_of(text, place), " and ".join(rules) or "none"
                raise FileError(f"{path}:{line}: {id}: needs one of {', '.join(RULES)}; found {given}")
            fields |= {"rule": rules[0], "expect": _expected(fields.pop(rules[0]))}
            gates.append(profile_text.valid(Gate, fields, text, str(path), place))
    return gates


def _same(check: Fields) -> Fields:
    """Return what a drill has from its check: the outcome of a miss, and the phase, where there is one."""
    outcome, phases = {"outcome": check.get("severity", "fail")}, check.get("phases")
    return outcome | ({"phase": phases[0]} if isinstance(phases, list) and len(phases) == 1 else {})


def _expected(limit: Any) -> Any:
    """Read what follows a rule: `profile`, `fleet`, {requested: field of run.json}, or a limit."""
    if limit in ("profile", "fleet"):
        return limit
    return {"field": limit["requested"]} if isinstance(limit, dict) and "requested" in limit else {"value": limit}


def _by_id(records: Iterable[T]) -> dict[str, T]:
    """Raise FileError for an id that comes twice: the second would hide the first."""
    by_id: dict[str, T] = {}
    for record in records:
        if record.id in by_id:
            raise FileError(f"{CHECKS}: {record.id} comes twice; give each check and each drill a name of its own")
        by_id[record.id] = record
    return by_id


GATES: dict[str, Gate] = _by_id(gate for name in FILES for gate in read(CHECKS / f"{name}.yaml"))
Gates = Mapping[str, Gate]
NONE: Gates = {}
DECLARED: dict[str, Drill] = _by_id(drill for gate in GATES.values() for drill in gate.drills.values())
DRILLS: tuple[Drill, ...] = tuple(  # on local clusters of their shapes
    drill.placed(drill.shape.names, drill.shape.gpus_per_node) for drill in DECLARED.values()
)


def of_phase(stem: str, own: Gates = NONE) -> list[Gate]:
    return [gate for gate in (*GATES.values(), *own.values()) if stem in gate.phases]


def proving(claim: str, own: Gates = NONE) -> list[str]:
    """Return gates that prove a claim. If none of them was judged, the claim was not asked."""
    return [gate.id for gate in (*GATES.values(), *own.values()) if claim in gate.claims]


def bearing_on(claim: str) -> list[str]:
    """Return gates whose failure contradicts a claim."""
    return [gate.id for gate in GATES.values() if claim in gate.bears_on]


def question_of(gate: Gate) -> int:
    return next(claim.question for claim in CLAIMS if claim.id in (*gate.claims, *gate.bears_on))


def load_profile(name: str) -> profiles.Profile:
    """Load a profile and check it against all gates, before anything runs. Raises FileError."""
    return profiles.load(name, GATES)
