"""Many names in few words."""

from __future__ import annotations

from collections.abc import Sequence

from bringup.evidence import hostlist

MAX_NAMED = 6
MAX_CHARACTERS = 120  # of a list in Slurm's short form


def shortened(names: Sequence[str]) -> str:
    """`n0, n1, … n1023 (1024)`."""
    if len(names) <= 2 * MAX_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:MAX_NAMED])}, … {names[-1]} ({len(names)})"


def the_first(names: Sequence[str], shown: int = 4) -> str:
    """`n0, n1, n2, n3 and 4 more`."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def listed(names: Sequence[str]) -> str:
    """Each name once: nodes in Slurm's short form, `n[0-99] (100)`; other subjects, and lists that stay long, as
    `shortened`."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) > hostlist.FEW and all(map(hostlist.is_name, distinct)):
        short = hostlist.shortened(distinct)
        if len(short) <= MAX_CHARACTERS:
            return f"{short} ({len(distinct)})"
    return shortened(distinct)
