"""A node: who answered, and how far its clock is from the others."""

from __future__ import annotations

from bringup.evidence import clock
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Run


def answered(derived: Parsed, observed: Seen, run: Run) -> None:
    """If srun could not reach a node, that is an observed fault, not only missing evidence."""
    answers = observed.of("probe.inventory.finished")
    derived.observations += [answer.model_copy(update={"quantity": "discovery.node.answered"}) for answer in answers]
    who = {answer.subject for answer in answers}
    for error in observed.of("slurm.launch.error"):
        if error.subject not in who:
            derived.saw("discovery.node.answered", error.subject, False, "flag", error.evidence, str(error.value))


def clock_offset(derived: Parsed, observed: Seen, run: Run) -> None:
    """Distance from the fleet's median clock, plus the uncertainty."""
    measured = clock.shifts([*observed.of(clock.BEHIND), *observed.of(clock.UNCERTAINTY)])
    for behind in observed.of(clock.BEHIND):
        shift = measured.get(behind.subject)
        if shift is None:
            value, why = None, behind.why or "its uncertainty did not arrive"
        else:
            value, why = abs(shift.seconds) + shift.uncertainty, str(shift)
        derived.saw("discovery.clock.offset", behind.subject, value, "s", behind.evidence, why)
