"""What the words of a node's state mean for a run.

The words are those of `scontrol show node`: the states and flags of src/common/slurm_protocol_defs.c (read for 22.05
and 23.02), the node states that clients of its REST interface list, and the marks behind a state of sinfo(1). Words of
before 21.08 and what BLOCKED and UNDRAIN mean were not seen on a cluster. A word that is not here counts as BROKEN.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

# states of a healthy node, without its harmless flags
USABLE_STATES: list[float] | list[str] = ["IDLE", "MIXED", "ALLOCATED", "COMPLETING"]


class Meaning(IntEnum):
    """In the order in which they decide, where a state has several words."""

    USABLE = 0
    WAIT = 1  # it comes back by itself, and Slurm takes jobs for it meanwhile
    CLOSED = 2  # an administrator closed it
    BROKEN = 3


_U, _W, _C, _B = Meaning


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


_STATES = (
    (_U, "free", "IDLE"),
    (_U, "partly busy", "MIXED"),
    (_U, "busy", "ALLOCATED"),
    (_U, "a job ends there", "COMPLETING"),
    (_U, "an instance of a cloud", "CLOUD"),
    (_U, "it registered by itself", "DYNAMIC_NORM DYNAMIC_FUTURE"),
    (_U, "its network counters are in use", "PERFCTRS"),
    (_U, "planned for a job that waits", "PLANNED"),
    (_U, "reserved", "RESERVED"),
    (_U, "resumed", "RESUME UNDRAIN"),
    (_U, "a reboot was called off", "REBOOT_CANCELED"),
    (_W, "a job has its block of the topology alone", "BLOCKED"),  # 23.11
    (_W, "powered down", "POWERED_DOWN POWER"),  # POWER, REBOOT, MAINT: before 21.08
    (_W, "powering down", "POWERING_DOWN POWER_DOWN"),
    (_W, "powering up", "POWERING_UP POWER_UP"),
    (_W, "rebooting", "REBOOT_ISSUED REBOOT"),
    (_W, "it reboots when its jobs have ended", "REBOOT_REQUESTED"),
    (_W, "it powers down when its jobs have ended", "POWER_DRAIN"),
    (_C, "in maintenance", "MAINTENANCE MAINT"),
    (_C, "drained: it takes no new job", "DRAIN"),
    (_C, "failing: it takes no new job", "FAIL"),
    (_C, "defined, and not there yet", "FUTURE"),
    (_B, "down", "DOWN"),
    (_B, "in error", "ERROR"),
    (_B, "it reports less hardware than slurm.conf says", "INVALID INVALID_REG"),
    (_B, "it has not registered since slurmctld began", "UNKNOWN"),
    (_B, "slurmd does not answer", "NOT_RESPONDING"),
)
WORDS = {word: (meaning, says) for meaning, says, words in _STATES for word in words.split()}
_OF_MARKS = (
    "NOT_RESPONDING POWERED_DOWN POWERING_UP POWER_DOWN POWERING_DOWN MAINTENANCE REBOOT_REQUESTED REBOOT_ISSUED"
)
_MARKS = dict(zip("*~#!%$@^-", [*_OF_MARKS.split(), "PLANNED"], strict=True))
_SILENT = frozenset(word for word in WORDS if word.startswith(("POWER", "REBOOT"))) - {
    *("POWER_DOWN", "POWER_DRAIN", "REBOOT_REQUESTED", "REBOOT_CANCELED")
}  # there slurmd still runs


def harmful(state: str, *, has_reservation: bool = False) -> str:
    """Return the state without flags that are no fault: IDLE+CLOUD+POWERED_DOWN -> IDLE.

    has_reservation: whether the run uses the node's reservation; the maintenance is then its own.
    """
    marks = "".join(_MARKS)
    parts = [
        word for part in state.split("+") for word in (part.rstrip(marks), *(_MARKS[m] for m in part if m in marks))
    ]
    excused = {"MAINT", "MAINTENANCE"} if has_reservation else set[str]()
    if not _SILENT.isdisjoint(parts):  # no slurmd runs there yet, or any more
        excused.add("NOT_RESPONDING")
    base, *flags = parts
    kept = [flag for flag in flags if flag not in excused and meaning(flag)[0] > Meaning.WAIT]
    return "+".join([base, *kept] if base != "COMPLETING" or not kept else kept)


def meaning(state: str) -> tuple[Meaning, str]:
    """Say what the worst word of a state means and says; of equals the last one, which says more."""
    words = reversed(state.split("+"))
    return max((WORDS.get(word, (Meaning.BROKEN, word.lower())) for word in words), key=lambda each: each[0])
