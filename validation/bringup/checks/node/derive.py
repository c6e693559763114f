"""What follows from single facts of nodes: clocks and memory against the fleet's median, and who was not reached."""

from __future__ import annotations

import statistics

from bringup.evidence import clock
from bringup.evidence.parsed import Parsed, Seen, numbers
from bringup.records import Observation, Run


def derive(seen: Seen, run: Run) -> Parsed:
    found = Parsed()
    _clock(found, seen)
    _memory(found, seen.of("discovery.memory"))
    _not_reached(found, seen)
    return found


def _clock(found: Parsed, seen: Seen) -> None:
    """Distance from the fleet's median clock, uncertainty added."""
    measured = clock.shifts([*seen.of(clock.BEHIND), *seen.of(clock.UNCERTAINTY)])
    for one in seen.of(clock.BEHIND):
        shift = measured.get(one.subject)
        if shift is None:
            found.saw(
                "discovery.clock.offset",
                one.subject,
                None,
                "s",
                one.evidence,
                one.why or "its uncertainty did not arrive",
            )
        else:
            found.saw(
                "discovery.clock.offset",
                one.subject,
                abs(shift.seconds) + shift.uncertainty,
                "s",
                one.evidence,
                str(shift),
            )


def _memory(found: Parsed, several: list[Observation]) -> None:
    """Share of the fleet's median: firmware takes a little more on one board than on another."""
    sizes = numbers(several)
    median = statistics.median(sizes.values()) if sizes else 0.0
    for one in several:
        if one.subject in sizes and median > 0:
            found.saw(
                "discovery.memory.of_median",
                one.subject,
                sizes[one.subject] / median,
                "share",
                one.evidence,
                f"{sizes[one.subject]:.1f} GiB, the median is {median:.1f} GiB",
            )


def _not_reached(found: Parsed, seen: Seen) -> None:
    """A node that srun could not reach is an observed fault and not just missing evidence."""
    answered = seen.by_subject("probe.inventory.finished")
    for error in seen.of("slurm.launch.error"):
        if error.subject not in answered:
            found.saw("probe.inventory.finished", error.subject, False, "flag", error.evidence, str(error.value))
