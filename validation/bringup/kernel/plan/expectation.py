"""What a profile expects of one gate: one comparison, its number for each number of nodes, its unit and its source."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Discriminator, Field, Tag, field_validator, model_validator

from bringup.kernel.plan import ceiling
from bringup.kernel.plan.ceiling import Machine
from bringup.kernel.plan.rules import DECLARABLE
from bringup.kernel.records import Limit, Record

_AT = re.compile(r"[1-9][0-9]*(B|KiB|MiB|GiB|Gb/s)")
_BYTES = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_SIZE = re.compile(r"(?P<number>[0-9]{1,12})(?P<unit>KiB|MiB|GiB|B)")


class Share(Record):
    """A limit as a share of the machine's ceiling on this number of nodes (kernel/plan/ceiling.py)."""

    share_of_ceiling: float = Field(gt=0, le=1)
    algorithm: ceiling.Algorithm = "best"  # of all_reduce; ring: the ceiling when NCCL uses a ring


def _kind(value: Any) -> str:
    return "[share]" if isinstance(value, dict | Share) else "[number]"


Amount = Annotated[Annotated[float, Tag("[number]")] | Annotated[Share, Tag("[share]")], Discriminator(_kind)]


@dataclass(frozen=True)
class Applied:
    """The limit for one number of nodes."""

    value: Limit | None  # None: no limit; `why` gives the reason
    why: str | None = None  # how it was computed from the number of nodes; None: it does not depend on it


SPEEDS = ("GB/s", "TFLOP/s", "1/s")  # units of gates whose value is a speed
MEASURED_HERE = "measured by "  # begins the source of a number that a cluster gave itself


def size_bytes(name: str) -> int | None:
    """Read `16MiB` -> 16777216; None when it is not a size."""
    match = _SIZE.fullmatch(name)
    return int(match["number"]) * _BYTES[match["unit"]] if match else None


class Expectation(Record):
    """Exactly one comparison, its unit, and the source of its number."""

    equals: bool | int | float | str | None = None
    at_least: Amount | None = None
    at_most: float | None = None
    between: list[float] | None = Field(default=None, min_length=2, max_length=2)
    one_of: list[str] | None = Field(default=None, min_length=1)
    # a subject may be this share of the fleet's median below it
    near_peers: float | None = Field(default=None, gt=0, lt=1)
    at: str | None = None  # the named size this holds for: 16MiB
    # number of nodes -> the limit that replaces this one from there on
    from_nodes: dict[Annotated[int, Field(ge=1)], Amount] | None = None
    unit: str
    source: str = Field(min_length=3)

    @field_validator("at")
    @classmethod
    def _a_size(cls, at: str | None) -> str | None:
        if at is not None and _AT.fullmatch(at) is None:
            neither = f"{at!r} is neither the size of a message nor the rate of a port"
            raise ValueError(f"{neither}: write it as 8GiB, 64KiB or 400Gb/s")
        return at

    @model_validator(mode="after")
    def _exactly_one(self) -> Expectation:
        named = [rule for rule in DECLARABLE if getattr(self, rule) is not None]
        if len(named) != 1:
            raise ValueError(f"needs exactly one of {', '.join(DECLARABLE)}; found {', '.join(named) or 'none'}")
        if self.from_nodes and named[0] not in ("at_least", "at_most"):
            raise ValueError(f"from_nodes goes with at_least or at_most, not with {named[0]}")
        if self.at_most is not None and any(isinstance(amount, Share) for amount in (self.from_nodes or {}).values()):
            raise ValueError("share_of_ceiling is a floor: it goes with at_least, not with at_most")
        if self.between is not None and self.between[0] > self.between[1]:
            raise ValueError(f"between: {self.between[0]:g} is more than {self.between[1]:g}; give [low, high]")
        return self

    @property
    def rule(self) -> str:
        return next(rule for rule in DECLARABLE if getattr(self, rule) is not None)

    @property
    def expected(self) -> Any:
        """Return the value as declared, not yet for a number of nodes; see `limit`."""
        return getattr(self, self.rule)

    @property
    def is_own(self) -> bool:
        """Say whether the cluster measured it itself: then it says `as before`, and not `as bought`."""
        return self.source.startswith(MEASURED_HERE)

    @property
    def shares(self) -> bool:
        """Say whether it needs a ceiling."""
        return any(isinstance(amount, Share) for amount in (self.at_least, *(self.from_nodes or {}).values()))

    @property
    def depends_on_nodes(self) -> bool:
        return self.shares or bool(self.from_nodes)

    def limit(self, gate: str, machine: Machine, nodes: int, gpus_per_node: int | None = None) -> Applied:
        """Return the limit for so many nodes, and GPUs in use on each. A ceiling holds only for whole nodes."""
        reached = [count for count in self.from_nodes or {} if count <= nodes]
        amount = self.expected if self.from_nodes is None or not reached else self.from_nodes[max(reached)]
        since = f"from {max(reached)} nodes on" if reached and max(reached) > 1 else None
        if not isinstance(amount, Share):
            return Applied(amount, since)
        whole = None if machine.gpus_per_node is None else machine.gpus_per_node.value
        if None not in (whole, gpus_per_node) and gpus_per_node != whole:
            return Applied(None, f"the ceiling is that of nodes with {whole:g} GPUs, and {gpus_per_node} are used")
        highest = ceiling.ceiling(gate, machine, nodes, amount.algorithm)
        if isinstance(highest, str):
            return Applied(None, highest)
        share = f"{f'{since} ' if since else ''}{amount.share_of_ceiling:g} of {highest}"
        return Applied(float(f"{amount.share_of_ceiling * highest.gb_per_s:.4g}"), share)
