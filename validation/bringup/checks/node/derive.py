"""Observations derived from facts of nodes: answers, clocks and memory against the fleet's median, libraries."""

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


def derive(observed: Seen, run: Run) -> Parsed:
    derived = Parsed()
    if run.phase == "discovery":
        _state(derived, observed)
        _answered(derived, observed)
        _clock(derived, observed)
        _memory(derived, observed.of("inventory.memory"))
        for quantity, observations in observed.starting_with(_LIBRARY).items():
            _library(derived, quantity.removeprefix(_LIBRARY), observations)
        derived.add(names.derive(observed))
        derived.add(settings.derive(observed, "discovery.settings", observed.starting_with(_SETTINGS), settings.ABSENT))
        derived.add(settings.derive(observed, "discovery.network", ("inventory.network",), "0"))
        derived.add(folders.derive(observed, "discovery.tmp", ("tmp", "shm")))
    return derived


def _state(derived: Parsed, observed: Seen) -> None:
    derived.observations += [
        state.model_copy(update={"quantity": "discovery.node.state"}) for state in observed.of("slurm.node.state")
    ]


def _answered(derived: Parsed, observed: Seen) -> None:
    """If srun could not reach a node, that is an observed fault, not only missing evidence."""
    answers = observed.of("probe.inventory.finished")
    derived.observations += [answer.model_copy(update={"quantity": "discovery.node.answered"}) for answer in answers]
    answered = {answer.subject for answer in answers}
    for error in observed.of("slurm.launch.error"):
        if error.subject not in answered:
            derived.saw("discovery.node.answered", error.subject, False, "flag", error.evidence, str(error.value))


def _clock(derived: Parsed, observed: Seen) -> None:
    """Distance from the fleet's median clock, plus the uncertainty."""
    measured = clock.shifts([*observed.of(clock.BEHIND), *observed.of(clock.UNCERTAINTY)])
    for behind in observed.of(clock.BEHIND):
        shift = measured.get(behind.subject)
        if shift is None:
            value, why = None, behind.why or "its uncertainty did not arrive"
        else:
            value, why = abs(shift.seconds) + shift.uncertainty, str(shift)
        derived.saw("discovery.clock.offset", behind.subject, value, "s", behind.evidence, why)


def _memory(derived: Parsed, several: list[Observation]) -> None:
    """Memory as a share of the fleet's median, because firmware reserves a little more on some boards."""
    sizes = numbers(several)
    median = statistics.median_high(sizes.values()) if sizes else 0.0
    for size in several:
        if size.subject in sizes and median > 0:
            derived.saw(
                "discovery.memory",
                size.subject,
                round(sizes[size.subject] / median, 3),
                "share",
                size.evidence,
                f"{sizes[size.subject]:.1f} GiB, the median is {median:.1f} GiB",
            )


def _library(derived: Parsed, name: str, observations: list[Observation]) -> None:
    """Versions of a library on all nodes. If all nodes lack it, it is unknown: absence is not equality."""
    known = [library.value for library in observations if library.value is not None]
    lacking = known.count(ABSENT)
    for library in observations:
        value, why = library.value, library.why
        if value == ABSENT and lacking == len(known):
            value, why = None, "it is not installed on any node"
        elif value == ABSENT and lacking * 2 > len(known):
            value = f"{ABSENT} on {library.subject}"
        derived.saw(f"discovery.library.{name}", library.subject, value, "text", library.evidence, why)
