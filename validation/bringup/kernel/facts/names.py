"""Many names, or sentences, in few words."""

from collections.abc import Mapping, Sequence

from bringup.kernel.facts import hostlist
from bringup.kernel.records import grouped

MAX_NAMED = 6
MAX_CHARACTERS = 120  # of a list in Slurm's short form


def shortened(names: Sequence[str]) -> str:
    """Write `n0, n1, … n1023 (1024)`."""
    if len(names) <= 2 * MAX_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:MAX_NAMED])}, … {names[-1]} ({len(names)})"


def the_first(names: Sequence[str], shown: int = 4) -> str:
    """Write `n0, n1, n2, n3 and 4 more`."""
    return ", ".join(names[:shown]) + (f" and {len(names) - shown} more" if len(names) > shown else "")


def first_few(sentences: Sequence[str], shown: int = 4, number: int = 0) -> str:
    """Write `one; two; and 3 more`. number: how many there are, if not all are in `sentences`."""
    more = max(len(sentences), number) - shown
    return "; ".join(sentences[:shown]) + (f"; and {more} more" if more > 0 else "")


def by_reason(reasons: Mapping[str, str]) -> str:
    """Write `n0 (no GPU); n3, n4 (gpu:a100:2)`, of the reason of each name."""
    names = grouped((why, name) for name, why in reasons.items())
    return first_few([f"{the_first(several)} ({why})" for why, several in names.items()])


def listed(names: Sequence[str]) -> str:
    """Name each once: nodes in Slurm's short form, `n[0-99] (100)`; other subjects, and lists that stay long, as
    `shortened`."""
    distinct = list(dict.fromkeys(names))
    if len(distinct) > hostlist.FEW and all(map(hostlist.is_name, distinct)):
        short = hostlist.shortened(distinct)
        if len(short) <= MAX_CHARACTERS:
            return f"{short} ({len(distinct)})"
    return shortened(distinct)
