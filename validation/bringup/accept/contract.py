"""A contract as data: the nodes that were sold, and lines, each with the evidence that would prove it.

A line names checks, statements of the six answers, or a fact with what it has to be. A line that names none of them is
one that bringup cannot show: it stays in the document, for people to sign.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import Any

from pydantic import Field, model_validator

from bringup.accept.records import Waiver, Words
from bringup.kernel.errors import FileError, UsageError
from bringup.kernel.facts import hostlist
from bringup.kernel.plan import profile_text
from bringup.kernel.plan.catalogue import GATES, proving
from bringup.kernel.plan.claims import CLAIMS
from bringup.kernel.plan.gate import OF_SITE
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.rules import Rule
from bringup.kernel.records import Name, Record, RunName, Value, Versioned

RULES: tuple[Rule, ...] = ("equals", "at_least", "at_most", "one_of")
MOST_BYTES = 2**20
NODES = "nodes"


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
    def _asks_one_thing(self) -> Line:
        asks = [name for name in ("checks", "statements", "fact", "shown_by") if getattr(self, name)]
        rules = [name for name in (*RULES, "on_nodes") if getattr(self, name) is not None]
        if len(asks) > 1:
            raise ValueError(f"names {' and '.join(asks)}: write a line for each")
        if len(rules) != (self.fact is not None):
            raise ValueError(f"a fact needs one of {', '.join((*RULES, 'on_nodes'))}, and nothing else takes them")
        if self.fact is None and (self.phase or self.unit):
            raise ValueError("phase and unit are of a fact")
        claims = [claim.id for claim in CLAIMS]
        unknown: list[tuple[str, list[str], Iterable[str]]] = [
            ("check", [each for each in self.checks if not each.startswith(OF_SITE) and not _matching(each)], GATES),
            ("statement", [each for each in self.statements if each not in claims], claims),
            ("phase", [self.phase] if self.phase and self.phase not in PHASES else [], PHASES),
        ]
        for kind, names, known in unknown:
            if names:
                raise ValueError(f"no {kind} is called {names[0]}{profile_text.meant(names[0], known)}")
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
        """Return the checks that would prove it."""
        checks = [gate for asked in self.checks for gate in _matching(asked) or [asked]]
        return [*checks, *(gate for statement in self.statements for gate in proving(statement))]


def _matching(asked: str) -> list[str]:
    return [gate for gate in GATES if gate == asked or (asked.endswith("*") and gate.startswith(asked[:-1]))]


class Contract(Versioned):
    contract: RunName  # its short name, which becomes a part of the name of a folder
    vendor: Words | None = None
    customer: Words | None = None
    nodes: Words  # by name, as Slurm writes them: gpu-[00-63]
    gpus_per_node: int | None = Field(default=None, ge=1)
    lines: dict[RunName, Line] = Field(min_length=1)

    @model_validator(mode="after")
    def _names_its_nodes(self) -> Contract:
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
