"""Steps of the user's job: which run, and the end of those that a program of preflight left behind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from bringup.errors import SlurmError
from bringup.run import slurm

PATIENCE_S = 15  # that steps of an ended program may take to end by themselves


def running(job: str) -> set[str] | None:
    """The numbered steps of a job that run now, as 17.0. None: Slurm does not say it."""
    try:
        listed = slurm.ask("squeue", "--noheader", "--steps", f"--jobs={job}", "--format", "%i")
    except SlurmError:
        return None
    return {step for step in listed.split() if step.startswith(f"{job}.") and step.partition(".")[2].isdecimal()}


def end(job: str, others: set[str] | None, tell: Callable[[str], None]) -> bool:
    """Steps that a program left running are ended: they hold the GPUs. others: steps that were there before it; None:
    not known, and then none is ended. False: one stays, as it does in Slurm's books when a node of it was lost."""
    if others is None:
        tell("steps are left alone: Slurm did not say which ran before")
        return True
    deadline = time.monotonic() + PATIENCE_S
    while (left := (running(job) or set()) - others) and time.monotonic() < deadline:
        time.sleep(1)
    for step in sorted(left):
        tell(f"step {step}, which was left running, is ended")
        with contextlib.suppress(SlurmError):
            slurm.ask("scancel", "--signal=KILL", step)
    deadline = time.monotonic() + PATIENCE_S
    while left and (running(job) or set()) & left and time.monotonic() < deadline:
        time.sleep(1)
    return not left or not (running(job) or set()) & left
