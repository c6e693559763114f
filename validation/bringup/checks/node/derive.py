"""What follows from single facts of nodes: who answered, clocks and memory against the fleet's median, libraries."""

from __future__ import annotations

import statistics

from bringup.checks import folders
from bringup.checks.node import names, settings
from bringup.evidence import clock
from bringup.evidence.parsed import Parsed, Seen, numbers
from bringup.records import Observation, Run

ABSENT = "absent"  # as probes/software.py says of a library that is not installed
_LIBRARY = "inventory.library."
_SETTINGS = "inventory.settings."


def derive(seen: Seen, run: Run) -> Parsed:
    found = Parsed()
    if run.phase == "discovery":
        _state(found, seen)
        _answered(found, seen)
        _clock(found, seen)
        _memory(found, seen.of("inventory.memory"))
        for quantity, observations in seen.starting_with(_LIBRARY).items():
            _library(found, quantity.removeprefix(_LIBRARY), observations)
        found.add(names.derive(seen))
        found.add(settings.derive(seen, "discovery.settings", seen.starting_with(_SETTINGS), settings.ABSENT))
        found.add(settings.derive(seen, "discovery.network", ("inventory.network",), "0"))
        found.add(folders.derive(seen, "discovery.tmp", ("tmp", "shm")))
    return found


def _state(found: Parsed, seen: Seen) -> None:
    found.observations += [
        state.model_copy(update={"quantity": "discovery.node.state"}) for state in seen.of("slurm.node.state")
    ]


def _answered(found: Parsed, seen: Seen) -> None:
    """A node that srun could not reach is an observed fault and not just missing evidence."""
    answers = seen.of("probe.inventory.finished")
    found.observations += [answer.model_copy(update={"quantity": "discovery.node.answered"}) for answer in answers]
    answered = {answer.subject for answer in answers}
    for error in seen.of("slurm.launch.error"):
        if error.subject not in answered:
            found.saw("discovery.node.answered", error.subject, False, "flag", error.evidence, str(error.value))


def _clock(found: Parsed, seen: Seen) -> None:
    """Distance from the fleet's median clock, uncertainty added."""
    measured = clock.shifts([*seen.of(clock.BEHIND), *seen.of(clock.UNCERTAINTY)])
    for behind in seen.of(clock.BEHIND):
        shift = measured.get(behind.subject)
        if shift is None:
            value, why = None, behind.why or "its uncertainty did not arrive"
        else:
            value, why = abs(shift.seconds) + shift.uncertainty, str(shift)
        found.saw("discovery.clock.offset", behind.subject, value, "s", behind.evidence, why)


def _memory(found: Parsed, several: list[Observation]) -> None:
    """Share of the fleet's median: firmware takes a little more on one board than on another."""
    sizes = numbers(several)
    median = statistics.median(sizes.values()) if sizes else 0.0
    for size in several:
        if size.subject in sizes and median > 0:
            found.saw(
                "discovery.memory",
                size.subject,
                sizes[size.subject] / median,
                "share",
                size.evidence,
                f"{sizes[size.subject]:.1f} GiB, the median is {median:.1f} GiB",
            )


def _library(found: Parsed, name: str, observations: list[Observation]) -> None:
    """Absence is not equality. A library that all nodes lack was not compared."""
    known = [library.value for library in observations if library.value is not None]
    lacking = known.count(ABSENT)
    for library in observations:
        value, why = library.value, library.why
        if value == ABSENT and lacking == len(known):
            value, why = None, "it is not installed on any node"
        elif value == ABSENT and lacking * 2 > len(known):
            value = f"{ABSENT} on {library.subject}"
        found.saw(f"discovery.library.{name}", library.subject, value, "text", library.evidence, why)
