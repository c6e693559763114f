"""Help for a gate that did not pass. Data; a section of docs/ is generated from each guide."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from bringup.records import Action

_PLACE = re.compile(r"\{(\w+)\}")
PLACES = ("node", "nodes", "node_count", "gpus", "run", "job", "profile")
"""Places in a command: one node that failed, all nodes of the run (n0,n1), their number, GPUs per node, the run's
folder, its Slurm job, its profile."""


@dataclass(frozen=True, kw_only=True)
class Guide:
    """Help for one gate, or for several that fail for the same reasons."""

    title: str
    page: str  # in docs/, without .md
    action: Action  # what usually helps, in one word
    observes: str  # what is observed, and how
    why: str  # why it matters
    usually_means: str  # usual causes of a failure, and of an incomplete verdict
    next: tuple[str, ...]  # commands; each runs as pasted once its places are filled
    by_hand: str = ""  # steps without a command

    def commands(self, known: Mapping[str, str]) -> list[str]:
        """`next` with its places filled. A command with an unknown place is left out, because it would not run."""
        filled = []
        for command in self.next:
            places = set(_PLACE.findall(command)) & set(PLACES)
            if places <= set(known):
                filled.append(
                    _PLACE.sub(lambda match: shlex.quote(known[match[1]]) if match[1] in PLACES else match[0], command)
                )
        return filled
