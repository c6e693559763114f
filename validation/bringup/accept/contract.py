"""A contract as data: the nodes that were sold, and lines, each with the evidence that would prove it.

A line names checks (`checks`), statements of the six answers (`statements`), or a fact with what it has to be. A line
that names none of them is one that bringup cannot show: it stays in the document, for people to sign.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from bringup.kernel.errors import FileError, UsageError
from bringup.kernel.facts import hostlist
from bringup.kernel.plan import profile_text
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.gate import OF_SITE
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.rules import Rule
from bringup.kernel.records import Name, Record, RunName, Value, Versioned

Words = Annotated[str, Field(min_length=1)]
RULES: tuple[Rule, ...] = ("equals", "at_least", "at_most", "one_of")
MOST_BYTES = 2**20


class Line(Record):
    says: Words  # as the contract says it
    checks: list[Name] = Field(default_factory=list)  # ids; a * at the end: all that begin so
    statements: list[Name] = Field(default_factory=list)  # of the six answers
    fact: Name | None = None  # what was observed: discovery.gpu.model
    phase: Name | None = None  # that observed the fact; else all that did
    at: str | None = None  # of a fact that was measured at several sizes of messages: 8GiB; else the largest one
    unit: str | None = None  # that the fact has
    equals: Value | None = None
    at_least: float | None = None
    at_most: float | None = None
    one_of: list[str] | None = None
    on_nodes: dict[Name, list[str]] | None = None  # node -> its values, in any order: serial numbers
    devices: int | None = Field(default=None, ge=1)  # how many a node has, of a fact of devices
    shown_by: Words | None = None  # of a line that bringup cannot show: what else does, such as a visit

    @model_validator(mode="after")
    def _asks_one_thing(self) -> Line:
        asks = [name for name in ("checks", "statements", "fact") if getattr(self, name)]
        rules = [name for name in (*RULES, "on_nodes") if getattr(self, name) is not None]
        if len(asks) > 1:
            raise ValueError(f"names {' and '.join(asks)}: write a line for each")
        if (self.fact is not None) != (len(rules) == 1) or len(rules) > 1:
            raise ValueError(f"a fact needs one of {', '.join((*RULES, 'on_nodes'))}, and nothing else takes them")
        if self.fact is None and (self.phase or self.at or self.unit or self.devices):
            raise ValueError("phase, at, unit and devices are of a fact")
        if self.phase is not None and self.phase not in PHASES:
            raise ValueError(f"no phase is called {self.phase}{profile_text.meant(self.phase, PHASES)}")
        if self.shown_by is not None and asks:
            raise ValueError("shown_by is of a line that names no checks, statements or fact")
        for asked in self.checks:
            if not asked.startswith(OF_SITE) and not _matching(asked):
                raise ValueError(f"no check is called {asked}{profile_text.meant(asked, GATES)}")
        known = [claim.id for claim in CLAIMS]
        if wrong := next((each for each in self.statements if each not in known), None):
            raise ValueError(f"no statement is called {wrong}; there are {', '.join(known)}")
        return self

    @property
    def rule(self) -> Rule:
        """Return how the value of the fact is compared; on_nodes: each node's own values are equal."""
        return next((rule for rule in RULES if getattr(self, rule) is not None), "equals")

    @property
    def limit(self) -> Any:
        return getattr(self, self.rule)

    @cached_property
    def gates(self) -> list[str]:
        return [gate for asked in self.checks for gate in (_matching(asked) or [asked])]


def _matching(asked: str) -> list[str]:
    if asked.endswith("*"):
        return [gate for gate in GATES if gate.startswith(asked[:-1])]
    return [asked] if asked in GATES else []


class Waiver(Record):
    """A line that is accepted although it is not proven."""

    line: Name
    who: Words
    why: Words


class Contract(Versioned):
    contract: RunName  # its short name, which becomes a part of the name of a folder
    vendor: Words | None = None
    customer: Words | None = None
    nodes: Words  # by name, as Slurm writes them: gpu-[00-63]
    lines: dict[RunName, Line] = Field(min_length=1)
    exceptions: list[Waiver] = Field(default_factory=list)

    @cached_property
    def node_names(self) -> list[str]:
        return hostlist.expand(self.nodes)

    def waiver(self, line: str) -> Waiver | None:
        return next((each for each in self.exceptions if each.line == line), None)


def parse(text: str, where: str) -> Contract:
    """Read a contract strictly. Raises FileError with the line of the file."""
    data = profile_text.read(text, where, "a contract", "schema_version, contract and nodes")
    read = profile_text.valid(Contract, data, text, where)
    try:
        read.node_names  # noqa: B018  # it is what raises
    except UsageError as error:
        raise FileError(f"{where}:{profile_text.line_of(text, ('nodes',))}: nodes: {error}") from error
    of_lines = [(f"exceptions: {each.line}", [each.line], read.lines) for each in read.exceptions]
    of_nodes = [
        (f"lines.{name}.on_nodes", line.on_nodes, read.node_names)
        for name, line in read.lines.items()
        if line.on_nodes is not None
    ]
    for place, named, known in (*of_lines, *of_nodes):
        if wrong := next((each for each in named if each not in known), None):
            raise FileError(f"{where}: {place}: the contract has no {wrong}{profile_text.meant(wrong, known)}")
    return read


def text_of(path: Path) -> str:
    text = profile_text.text_of(path, "contract ")
    if len(text) > MOST_BYTES:
        raise FileError(f"{path}: {len(text)} characters are more than a contract has ({MOST_BYTES})")
    return text
