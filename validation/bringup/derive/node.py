"""A node: who answered, and how far its clock is from the others."""

from __future__ import annotations

from bringup.derive.fold import ALONE
from bringup.evidence import clock
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Run


def answered(derived: Parsed, observed: Seen, run: Run) -> None:
    """Count a node that srun could not reach as an observed fault, not only as missing evidence."""
    answers = observed.of("probe.inventory.finished")
    derived.observations += [answer.model_copy(update={"quantity": "discovery.node.answered"}) for answer in answers]
    who = {answer.subject for answer in answers}
    for error in observed.of("slurm.launch.error"):
        if error.subject not in who:
            derived.saw("discovery.node.answered", error.subject, False, "flag", error.evidence, str(error.value))


def clock_offset(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive the distance from the fleet's median clock, plus the uncertainty. Of two clocks the median is halfway,
    where no clock is: there it is their distance, and the one that the kernel calls unsynchronised has it."""
    measured = clock.shifts([*observed.of(clock.BEHIND), *observed.of(clock.UNCERTAINTY)])
    held = {fact.subject: fact.value for fact in observed.of("discovery.clock.synchronised")}
    for behind in observed.of(clock.BEHIND):
        node, shift = behind.subject, measured.get(behind.subject)
        others = [other for other in measured if other != node]
        if shift is None:
            value, why = None, behind.why or "its uncertainty did not arrive"
        elif not others:
            value, why = None, ALONE
        elif len(others) == 1:
            apart = 2 * abs(shift.seconds)
            is_right = held.get(node) is True and held.get(others[0]) is False
            value = shift.uncertainty + (0.0 if is_right else apart)
            why = f"{apart:.6f} ± {shift.uncertainty:.6f} s from {others[0]}"
            why += f", which nothing synchronises: {node} is synchronised" if is_right else ""
        else:
            value, why = abs(shift.seconds) + shift.uncertainty, str(shift)
        derived.saw("discovery.clock.offset", node, value, "s", behind.evidence, why)
