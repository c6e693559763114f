"""A contract as data: the nodes that were sold, and lines, each with the evidence that would prove it."""

from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Annotated, Any

from pydantic import Field, model_validator

from bringup.kernel.errors import FileError, RunError, UsageError
from bringup.kernel.facts import hostlist
from bringup.kernel.judge import Judged
from bringup.kernel.plan import expectation, phases, profile_text
from bringup.kernel.plan.catalogue import GATES, proving
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.gate import OF_SITE
from bringup.kernel.records import Name, Record, RunName, Value, Versioned, grouped, known

Words = Annotated[str, Field(min_length=1)]
RULES = ("equals", "at_least", "at_most", "one_of", "on_nodes")
NODES = "nodes"
_HEAD = "# Put in place of each value what was sold, and take out what was not. docs/acceptance.md explains the keys.\n"


class Waiver(Record):  # a line is accepted although it is not proven
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
        rules = [name for name in RULES if getattr(self, name) is not None]
        if len(asks) > 1:
            raise ValueError(f"names {' and '.join(asks)}: write a line for each")
        if len(rules) != (self.fact is not None):
            raise ValueError(f"a fact needs one of {', '.join(RULES)}, and nothing else takes them")
        if self.fact is None and (self.phase or self.unit):
            raise ValueError("phase and unit are of a fact")
        _refuse("no check is called", (gate for gate in self.gates if not gate.startswith(OF_SITE)), GATES)
        _refuse("no statement is called", self.statements, [claim.id for claim in CLAIMS])
        _refuse("no phase is called", [self.phase] if self.phase else [], phases.PHASES)
        return self

    @cached_property
    def gates(self) -> list[str]:
        """Return the checks that would prove it."""
        checks = [[gate for gate in GATES if fnmatchcase(gate, asked)] or [asked] for asked in self.checks]
        return [gate for several in (*checks, *map(proving, self.statements)) for gate in several]


class Contract(Versioned):
    contract: RunName  # its short name, which becomes a part of the name of a folder
    vendor: str = ""
    customer: str = ""
    nodes: Words  # by name, as Slurm writes them: gpu-[00-63]
    gpus_per_node: int | None = Field(default=None, ge=1)
    lines: dict[RunName, Line] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_its_nodes(self) -> "Contract":
        if NODES in self.lines:
            raise ValueError(f"lines.{NODES}: is the line of the nodes themselves; give this one another name")
        for name, line in self.lines.items():
            _refuse(f"lines.{name}.on_nodes: the contract has no", line.on_nodes or (), self.node_names)
        return self

    @cached_property
    def node_names(self) -> dict[str, None]:
        return dict.fromkeys(hostlist.expand(self.nodes))


def _refuse(words: str, names: Iterable[str], there: Iterable[str]) -> None:
    """Raise ValueError for a name that is not there, with what was meant."""
    for strange in sorted({*names} - {*there}):
        raise ValueError(f"{words} {strange}{profile_text.meant(strange, there)}")


def parse(text: str, where: str) -> Contract:
    """Read a contract strictly. Raises FileError with the line of the file."""
    data = profile_text.read(text, where, "a contract", "schema_version, contract and nodes")
    try:
        return profile_text.valid(Contract, data, text, where)
    except UsageError as error:  # it is no list of nodes
        raise FileError(f"{where}:{profile_text.line_of(text, ('nodes',))}: nodes: {error}") from error


def proposed(judged: Sequence[Judged]) -> str:
    """Return a contract to begin with, in YAML: lines of what a discovery saw, of the floors of speeds by which the
    runs were judged, at the widest scale, and of the six answers. Raises RunError without a discovery."""
    discovery = next((run for run in reversed(judged) if run.run.phase == "discovery"), None)
    if discovery is None:
        raise RunError("no run of discovery is among these: name one, or a playbook, and a contract is made of it")
    lines: dict[str, dict[str, Any]] = {}
    for fact, says in known("contract_facts", dict[str, str]).items():
        seen = [each for each in discovery.seen.of(fact) if each.value is not None]
        if len({str(each.value) for each in seen}) == 1:  # all nodes, or all devices, have it alike
            lines[fact] = {"says": says, "fact": fact, "unit": seen[0].unit, "equals": seen[0].value}
        elif texts := grouped((each.node, each.value) for each in seen if isinstance(each.value, str)):
            lines[fact] = {"says": says, "fact": fact, "on_nodes": dict(texts)}
    for phase, each in ((run.run.phase, verdict) for run in judged for verdict in run.verdicts.verdicts):
        gate, unit, fact = GATES.get(each.gate), each.unit, f"{each.gate}@{each.at}" if each.at else each.gate
        if gate is not None and each.rule == "at_least" and each.limit and unit in expectation.SPEEDS:
            lines[gate.id] = {"says": gate.proves, "fact": fact, "phase": phase, "unit": unit, "at_least": each.limit}
    lines |= {claim.id: {"says": claim.says, "statements": [claim.id]} for claim in CLAIMS if not claim.optional}
    parties = {"contract": "order-1", "vendor": "who sold it", "customer": "who bought it"}
    sold = {"nodes": hostlist.shortened(discovery.run.nodes), "gpus_per_node": discovery.run.gpus_per_node}
    return _HEAD + profile_text.dump({"schema_version": 1, **parties, **sold, "lines": lines})
