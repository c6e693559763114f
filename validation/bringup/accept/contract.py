"""A contract as data: the nodes that were sold, and lines, each with the evidence that would prove it.

A line names checks, statements of the six answers, or a fact with what it has to be. A line that names none of them is
one that bringup cannot show: it stays in the document, for people to sign.
"""

from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, model_validator

from bringup.kernel.errors import FileError, RunError, UsageError
from bringup.kernel.facts import hostlist
from bringup.kernel.judge import Judged
from bringup.kernel.plan import profile_text
from bringup.kernel.plan.catalogue import GATES, proving
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.expectation import SPEEDS
from bringup.kernel.plan.gate import OF_SITE
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.rules import Rule
from bringup.kernel.records import Name, Record, RunName, Value, Versioned, grouped, known

Words = Annotated[str, Field(min_length=1)]
RULES: tuple[Rule, ...] = ("equals", "at_least", "at_most", "one_of")
MOST_BYTES = 2**20
NODES = "nodes"
_SERIALS = "inventory.gpu.serial"
_HEAD = """\
# A contract, line by line: put in place of each value what was sold, and take out what was not.
# bringup accept RUN --contract THIS says of each line: proven, refuted, not proven, or not asked. docs/acceptance.md
"""


class Waiver(Record):
    """A line is accepted although it is not proven."""

    who: Words
    why: Words


class Line(Record):
    says: Words  # as the contract says it
    checks: list[Name] = Field(default_factory=list)  # ids; a * at the end: all that begin so
    statements: list[Name] = Field(default_factory=list)  # of the six answers
    fact: Name | None = None  # what was observed: discovery.gpu.model; with the size, else of the largest: NAME@8GiB
    phase: Name | None = None  # that observed the fact; else all that did
    unit: str | None = None  # that the fact has
    equals: Value | None = None
    at_least: float | None = None
    at_most: float | None = None
    one_of: list[str] | None = None
    on_nodes: dict[Name, list[str]] | None = None  # node -> its values, in any order: serial numbers
    shown_by: Words | None = None  # of a line that bringup cannot show: what else does, such as a visit
    exception: Waiver | None = None

    @model_validator(mode="after")
    def _asks_one_thing(self) -> "Line":
        asks = [name for name in ("checks", "statements", "fact", "shown_by") if getattr(self, name)]
        rules = [name for name in (*RULES, "on_nodes") if getattr(self, name) is not None]
        if len(asks) > 1:
            raise ValueError(f"names {' and '.join(asks)}: write a line for each")
        if len(rules) != (self.fact is not None):
            raise ValueError(f"a fact needs one of {', '.join((*RULES, 'on_nodes'))}, and nothing else takes them")
        if self.fact is None and (self.phase or self.unit):
            raise ValueError("phase and unit are of a fact")
        named: list[tuple[str, Iterable[str | None], Iterable[str]]] = [
            ("check", [gate for gate in self.gates if not gate.startswith(OF_SITE)], GATES),
            ("statement", self.statements, [claim.id for claim in CLAIMS]),
            ("phase", [self.phase], PHASES),
        ]
        for kind, names, there in named:
            if unknown := [name for name in names if name and name not in there]:
                raise ValueError(f"no {kind} is called {unknown[0]}{profile_text.meant(unknown[0], there)}")
        return self

    @cached_property
    def gates(self) -> list[str]:
        """Return the checks that would prove it."""
        checks = [[gate for gate in GATES if fnmatchcase(gate, asked)] or [asked] for asked in self.checks]
        return [gate for several in (*checks, *map(proving, self.statements)) for gate in several]


class Contract(Versioned):
    contract: RunName  # its short name, which becomes a part of the name of a folder
    vendor: Words | None = None
    customer: Words | None = None
    nodes: Words  # by name, as Slurm writes them: gpu-[00-63]
    gpus_per_node: int | None = Field(default=None, ge=1)
    lines: dict[RunName, Line] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_its_nodes(self) -> "Contract":
        if NODES in self.lines:
            raise ValueError(f"lines.{NODES}: is the line of the nodes themselves; give this one another name")
        for name, line in self.lines.items():
            if strange := sorted({*(line.on_nodes or ())} - {*self.node_names}):
                meant = profile_text.meant(strange[0], self.node_names)
                raise ValueError(f"lines.{name}.on_nodes: the contract has no {strange[0]}{meant}")
        return self

    @cached_property
    def node_names(self) -> list[str]:
        return hostlist.expand(self.nodes)


def parse(text: str, where: str) -> Contract:
    """Read a contract strictly. Raises FileError with the line of the file."""
    if len(text) > MOST_BYTES:
        raise FileError(f"{where}: {len(text)} characters are more than a contract has ({MOST_BYTES})")
    data = profile_text.read(text, where, "a contract", "schema_version, contract and nodes")
    try:
        return profile_text.valid(Contract, data, text, where)
    except UsageError as error:  # it is no list of nodes
        raise FileError(f"{where}:{profile_text.line_of(text, ('nodes',))}: nodes: {error}") from error


def proposed(judged: Sequence[Judged]) -> str:
    """Return a contract to begin with, in YAML: lines of what a discovery saw, of the numbers of the runs' profile, and
    of the six answers. Raises RunError without a discovery."""
    discovery = next((run for run in reversed(judged) if run.run.phase == "discovery"), None)
    if discovery is None:
        raise RunError("no run of discovery is among these: name one, or a playbook, and a contract is made of it")
    parties = {"contract": "order-1", "vendor": "who sold it", "customer": "who bought it"}
    sold = {"nodes": hostlist.shortened(discovery.run.nodes), "gpus_per_node": discovery.run.gpus_per_node}
    lines = {**dict(_seen(discovery)), **dict(_numbers(judged))}
    lines |= {claim.id: {"says": claim.says, "statements": [claim.id]} for claim in CLAIMS if not claim.optional}
    lines["power"] = {"says": "two feeds of power for each rack", "shown_by": "a visit"}
    return _HEAD + profile_text.dump({"schema_version": 1, **parties, **sold, "lines": lines})


def _seen(discovery: Judged) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a line for each fact that all nodes, or all devices, have alike, and one of serial numbers."""
    for fact, says in known("contract_facts", dict[str, str]).items():
        seen = [each for each in discovery.seen.of(fact) if each.value is not None]
        if len({str(each.value) for each in seen}) == 1:
            yield fact, {"says": says, "fact": fact, "unit": seen[0].unit, "equals": seen[0].value}
    serials = (each for each in discovery.seen.of(_SERIALS) if each.value is not None)
    if on_nodes := grouped((each.node, str(each.value)) for each in serials):
        yield "gpu-serials", {"says": "the GPUs by serial number", "fact": _SERIALS, "on_nodes": on_nodes}


def _numbers(judged: Sequence[Judged]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a line for each speed that the profile has a number for, at the size and with the unit of the profile."""
    for of, (gate, entry) in ((run, each) for run in judged for each in run.profile.expect.items()):
        if entry.at_least is None or entry.unit not in SPEEDS or of.run.phase not in GATES[gate].phases:
            continue
        floor = of.profile.limit(gate, len(of.run.nodes), of.run.ranks_per_node).value
        if floor is not None:
            line = {"says": GATES[gate].proves, "fact": f"{gate}@{entry.at}" if entry.at else gate}
            yield gate, {**line, "phase": of.run.phase, "unit": entry.unit, "at_least": floor}
