"""What a signature is: a line that a known fault leaves in a log, with its cause and the next command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["root", "either", "consequence"]
"""Whether such a line names a first cause, may be one, or only says that something else was lost."""

Breadth = Literal["exact", "program", "errno"]
"""What the pattern knows: this fault; only the program that speaks (any warning of NCCL, any launch that failed); or
only the words of an errno, which any program prints for many reasons. The exact ones are tried first, the errno words
last."""


@dataclass(frozen=True, kw_only=True)
class Signature:
    id: str
    area: str
    pattern: str  # a regular expression that a line holds
    cause: str
    do: str
    source: str  # who says so
    example: str  # a line as the program prints it; a test matches it
    role: Role = "root"
    breadth: Breadth = "exact"
    beside: str | None = None  # a pattern that another line of the same log has to hold, or the line means nothing
