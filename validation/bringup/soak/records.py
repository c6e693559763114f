"""`soak.json`: what a soak ran, what it found, and what it proved so far. It is written again after every rotation."""

from collections import Counter
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from bringup.domains.chance import most_events
from bringup.kernel.characters import many
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.records import Moment, Name, NodeName, NonNegative, Record, RunName, Versioned, known, read_record
from bringup.kernel.results import SOAK
from bringup.report.campaigns import LeftOut


class Kind(Record):
    """A kind of faults: of which parts of a node its hours are counted, and which checks fail for it."""

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


class Rotation(Record):
    """Each phase once, in a playbook of its own."""

    number: int = Field(ge=1)
    playbook: Name  # its folder, from the repository root
    began_at: Moment
    seconds: NonNegative
    nodes: list[NodeName]
    phases: list[Name]  # that ran
    hours: dict[Name, NonNegative]  # kind of fault -> hours of its parts in which it was looked for, and not found
    failing: list[Name]  # kind and place of each fault, new or not
    suspected: list[Name] = Field(default_factory=list)  # of each that is one only if the next rotation says so again


class Fault(Record):
    """A fault, when it was first found; as long as it stays, it is one. A drift is one, too."""

    kind: Name
    place: Name  # a node, a link n0--n1, or job: no node is named
    at: Moment  # the end of the job that found it
    rotation: int = Field(ge=1)
    gate: Name
    run: Name  # its folder, from the repository root
    says: str
    also: list[Name] = Field(default_factory=list)  # further gates that failed of it
    change: float | None = None  # of a drift: relative


class Without(LeftOut):
    """A node that the soak does without."""

    at: Moment
    rotation: int = Field(ge=1)


class Proven(Record):
    """What is known of a kind of fault."""

    kind: Name
    counts: Name  # GPU, NIC, node
    hours: NonNegative  # of such parts
    faults: int = Field(ge=0)
    asked: NonNegative | None  # hours for one fault, at which the soak ends

    @property
    def bound(self) -> float:
        """Return the hours in which at most one fault comes, with 95 %."""
        return self.hours / most_events(self.faults)

    @property
    def lacks(self) -> float:
        """Return the hours that are missing until what was asked is known, if no further fault is found."""
        return max(0.0, (self.asked or 0.0) * most_events(self.faults) - self.hours)


def proven(hours: Mapping[str, float], faults: Iterable[str], until: Mapping[str, float]) -> list[Proven]:
    """Return what is known of each kind that was looked for, found or asked. faults: the kind of each."""
    faults_of = Counter(faults)
    return [
        Proven(kind=kind, counts=of.counts, hours=hours.get(kind, 0.0), faults=faults_of[kind], asked=until.get(kind))
        for kind, of in KINDS.items()
        if hours.get(kind) or faults_of[kind] or until.get(kind)
    ]


class Soak(Versioned):
    BY_EYE: ClassVar[bool] = True

    name: RunName
    nodes: list[NodeName] = Field(min_length=1)
    gpus_per_node: int = Field(ge=1)
    profile: Name  # by name, or the path of its file
    site: Name | None
    phases: list[Name]
    hours: NonNegative | None = None  # after which it ends
    until: dict[Name, NonNegative] = Field(default_factory=dict)  # kind -> hours for one fault
    began_at: Moment
    ended: str | None = None  # why; null: it goes on, or was interrupted
    not_real: list[Name] = Field(default_factory=list)  # GPU, NCCL, fabric: a placeholder was there
    proven: list[Proven] = Field(default_factory=list)
    faults: list[Fault] = Field(default_factory=list)
    without: list[Without] = Field(default_factory=list)
    # warning, suspicion, or what stops a run and was not known -> in how many rotations; none is a fault
    remarks: dict[str, int] = Field(default_factory=dict)
    rotations: list[Rotation] = Field(default_factory=list)
    # a speed of a node or link, `GATE WHERE` -> s of the soak at which each rotation began, and the value
    speeds: dict[Name, list[tuple[NonNegative, float]]] = Field(default_factory=dict)

    @property
    def seconds(self) -> float:
        return sum(rotation.seconds for rotation in self.rotations)

    @property
    def suspected(self) -> list[str]:
        return self.rotations[-1].suspected if self.rotations else []

    @property
    def healthy(self) -> list[str]:
        out = {entry.node for entry in self.without}
        return [node for node in self.nodes if node not in out]

    @property
    def exit_code(self) -> int:
        """Return 1: a fault was found, 2: not all that was asked is known, or nothing of a kind, 0: else."""
        known = self.proven and all(each.hours > 0 and each.lacks == 0 for each in self.proven) and not self.suspected
        return 1 if self.faults else 0 if known else 2


def shown(folder: Path) -> tuple[str, list[str], str]:
    """Return what `bringup runs` shows of a soak: what it is, its nodes, and what was proven."""
    soak = read_record(folder / SOAK, Soak)
    bounds = [f"{each.kind} {each.bound:.3g}" for each in soak.proven if each.hours]
    known = f", at most one in hours of {', '.join(bounds)}" if bounds else ""
    rehearsed = f"; no {', '.join(soak.not_real)} was seen" if soak.not_real else ""
    words = f"{many(len(soak.faults), 'fault')}{known}{rehearsed}"
    return f"soak, {many(len(soak.rotations), 'rotation')}", soak.nodes, words
