"""What a signature is: a line that a known fault leaves in a log, with its cause and the next command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Role = Literal["root", "either", "consequence"]
"""Whether the line names a first cause, may name one, or only follows from another fault."""

Breadth = Literal["exact", "program", "errno"]
"""How specific the pattern is: one fault; one program (any warning of NCCL, any failed launch); or the words of an
errno, which many programs print for many reasons. Exact patterns are tried first, errno words last."""


@dataclass(frozen=True, kw_only=True)
class Signature:
    id: str
    area: str
    patterns: tuple[str, ...]  # regular expressions, each searched in a line: one that begins with a word is found fast
    cause: str
    do: str
    source: str  # program or document that the line is from
    example: str  # a line as the program prints it; a test matches it
    role: Role = "root"
    breadth: Breadth = "exact"
    # a pattern that another line of the same log must match; without it, the signature does not count
    beside: str | None = None
    not_after: str | None = None  # a pattern of an earlier line of the same log, after which the words are usual
    subject: str | None = None  # what the line must also name, where many programs print the same words
    as_warning: bool = False  # the program that stumbles over the fault only warns of it
