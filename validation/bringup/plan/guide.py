"""What a person has to know about a gate that did not pass. Data; a section of docs/ is generated from each guide."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass

from bringup.records import Action

_PLACE = re.compile(r"\{(\w+)\}")
PLACES = ("node", "nodes", "node_count", "gpus", "run", "job", "profile")
"""What a command may leave open: one node that failed, all nodes of the run (n0,n1), how many, GPUs per node, the run's
folder, its Slurm job, its profile."""


@dataclass(frozen=True, kw_only=True)
class Guide:
    """Gates that fail for the same reasons share one."""

    title: str
    page: str  # in docs/, without .md
    action: Action  # what usually helps, in one word
    observes: str  # what is looked at, and how
    why: str  # it matters
    usually_means: str  # when it fails, and when it is incomplete
    next: tuple[str, ...]  # commands; each runs as pasted once its places are filled
    by_hand: str = ""  # what no command does

    def commands(self, known: Mapping[str, str]) -> list[str]:
        """`next` with its places filled. A command whose place is not known is left out: it could not be pasted."""
        filled = []
        for command in self.next:
            wanted = set(_PLACE.findall(command)) & set(PLACES)
            if wanted <= set(known):
                filled.append(
                    _PLACE.sub(lambda match: shlex.quote(known[match[1]]) if match[1] in PLACES else match[0], command)
                )
        return filled
