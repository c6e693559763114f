"""Help for a gate that did not pass: a section of a page in docs/, and what to run next."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping

from bringup.records import Action, Record

_PLACE = re.compile(r"\{(\w+)\}")
PLACES = ("node", "nodes", "node_count", "gpus", "run", "job", "profile")
"""Places in a command: one node that failed, all nodes of the run (n0,n1), their number, GPUs per node, the run's
folder, its Slurm job, its profile."""


class Guide(Record):
    """Help for one gate, or for several that fail for the same reasons."""

    title: str  # the heading of the section
    page: str  # in docs/, without .md
    action: Action  # what usually helps, in one word
    next: tuple[str, ...] = ()  # commands; each runs as pasted once its places are filled

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
