"""What the words of a node's state mean for a run (validation/known/node_states.yaml). One that is not there counts as
BROKEN."""

import re
from dataclasses import dataclass
from enum import IntEnum

from bringup.kernel.records import Record, known

# states of a healthy node, without its harmless flags
USABLE_STATES: list[float] | list[str] = ["IDLE", "MIXED", "ALLOCATED", "COMPLETING"]


class Meaning(IntEnum):
    """In the order in which they decide, where a state has several words."""

    USABLE = 0
    WAIT = 1  # it comes back by itself, and Slurm takes jobs for it meanwhile
    CLOSED = 2  # an administrator closed it
    BROKEN = 3


@dataclass(frozen=True)
class Node:
    """A node as Slurm shows it. state: without harmless flags. gres: the part about GPUs, as jobs ask for it:
    gpu:h100:8. Of one that never registered the last three are empty."""

    state: str
    reason: str | None
    gpus: int = 0
    gres: str = ""
    features: tuple[str, ...] = ()
    arch: str = ""
    version: str = ""
    booted: str = ""

    @property
    def is_usable(self) -> bool:
        return self.state in USABLE_STATES

    @property
    def types(self) -> list[str]:
        """Name the types of its GPUs, where Gres names them."""
        return re.findall(r"gpu:([^:(,]+):\d+", self.gres)


class _Table(Record):
    words: dict[str, dict[str, str]]  # by the name of their meaning: word -> what it says
    marks: dict[str, str]  # behind a state -> its word
    without_slurmd: frozenset[str]


_TABLE = known("node_states", _Table)
WORDS = {word: (Meaning[name], says) for name, words in _TABLE.words.items() for word, says in words.items()}


def harmful(state: str, *, has_reservation: bool = False) -> str:
    """Return the state without flags that are no fault: IDLE+CLOUD+POWERED_DOWN -> IDLE.

    has_reservation: whether the run uses the node's reservation; the maintenance is then its own.
    """
    marks, all_marks = _TABLE.marks, "".join(_TABLE.marks)
    parts: list[str] = []
    for part in state.split("+"):
        parts += [part.rstrip(all_marks), *(marks[mark] for mark in part if mark in marks)]
    excused = {"MAINT", "MAINTENANCE"} if has_reservation else set[str]()
    if not _TABLE.without_slurmd.isdisjoint(parts):  # no slurmd runs there yet, or any more
        excused.add("NOT_RESPONDING")
    base, *flags = parts
    kept = [flag for flag in flags if flag not in excused and meaning(flag)[0] > Meaning.WAIT]
    return "+".join([base, *kept] if base != "COMPLETING" or not kept else kept)


def meaning(state: str) -> tuple[Meaning, str]:
    """Say what the worst word of a state means and says; of equals the last one, which says more."""
    words = reversed(state.split("+"))
    return max((WORDS.get(word, (Meaning.BROKEN, word.lower())) for word in words), key=lambda each: each[0])
