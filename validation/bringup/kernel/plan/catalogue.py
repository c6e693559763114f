"""The catalogue: the checks of validation/checks/*.yaml, read once. One more gate is one more entry in a file.

The first document of a file is its policy, read here. The second one holds drills (drill/catalogue.py)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import Field

from bringup.kernel.errors import FileError
from bringup.kernel.plan import profile_text
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.gate import Gate, Gates
from bringup.kernel.plan.rules import RULES
from bringup.kernel.records import Action, Record

CHECKS = Path(__file__).resolve().parents[3] / "checks"
FILES = (
    "run", "node", "alike", "gpu", "compute", "fabric", "slurm", "jobs", "filesystem", "sweep", "load", "nccl",
    "interconnect", "pairs", "ranks", "training", "checkpoints", "pace",
)  # fmt: skip
"""In the order of reports."""

Fields = dict[str, Any]


class _Named(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=_Named)


class _Section(Record):
    """The checks of one section of docs/."""

    title: str
    page: str | None = None
    action: Action
    next: tuple[str, ...] = ()
    defaults: Fields = Field(default_factory=dict)  # of every check that does not give its own
    checks: dict[str, Fields]


class _File(Record):
    page: str | None = None  # of the sections that name no other
    defaults: Fields = Field(default_factory=dict)
    sections: tuple[_Section, ...]


def read(path: Path, shared: Fields | None = None) -> list[Gate]:
    """Read the checks of a file, in its order. shared: fields of each check that gives no other. Raises FileError."""
    text, _ = documents(path)
    data = profile_text.read(text, str(path), "a file of checks", "page, defaults and sections")
    file = profile_text.valid(_File, data, text, str(path))
    gates = []
    for number, section in enumerate(file.sections):
        page = section.page or file.page or str(path)
        guide = section.model_dump(include={"title", "action", "next"}) | {"page": page}
        defaults = (shared or {}) | file.defaults | section.defaults
        for id, check in section.checks.items():
            fields = {**defaults, **check, "id": id, "guide": guide}
            place = ("sections", number, "checks", id)
            if "drills" in check:
                line = profile_text.line_of(text, (*place, "drills"))
                raise FileError(f"{path}:{line}: {id}: drills stand at the end of the file, behind a line `---`")
            rules = [rule for rule in RULES if rule in fields]
            if len(rules) != 1:
                line, given = profile_text.line_of(text, place), " and ".join(rules) or "none"
                raise FileError(f"{path}:{line}: {id}: needs one of {', '.join(RULES)}; found {given}")
            fields |= {"rule": rules[0], "expect": _expected(fields.pop(rules[0]))}
            gates.append(profile_text.valid(Gate, fields, text, str(path), place))
    return gates


def documents(path: Path) -> tuple[str, str]:
    """Read a file of checks: its policy, and the drills behind `---`, which keep the numbers of their lines. Raises
    FileError."""
    policy, mark, drills = profile_text.text_of(path).partition("\n---\n")
    return f"{policy}\n", "\n" * (policy.count("\n") + 2) + drills if mark else ""


def _expected(limit: Any) -> Any:
    """Read what follows a rule: `profile`, `fleet`, {requested: field of run.json}, or a limit."""
    if limit in ("profile", "fleet"):
        return limit
    return {"field": limit["requested"]} if isinstance(limit, dict) and "requested" in limit else {"value": limit}


def by_id(records: Iterable[T]) -> dict[str, T]:
    """Raise FileError for an id that comes twice: the second would hide the first."""
    known: dict[str, T] = {}
    for record in records:
        if record.id in known:
            raise FileError(f"{CHECKS}: {record.id} comes twice; give each check and each drill a name of its own")
        known[record.id] = record
    return known


OF_FILES = {path: read(path) for path in (CHECKS / f"{name}.yaml" for name in FILES)}
GATES: dict[str, Gate] = by_id(gate for gates in OF_FILES.values() for gate in gates)
NONE: Gates = {}


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
