"""Steps of the user's job: which run, and the end of those that a program of preflight left behind."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

from bringup.errors import SlurmError
from bringup.run import slurm

PATIENCE_S = 15  # that steps of an ended program may take to end by themselves


def running(job: str) -> set[str] | None:
    """List the numbered steps of a job that run now, as 17.0. None: Slurm does not say it."""
    try:
        listed = slurm.ask("squeue", "--noheader", "--steps", f"--jobs={job}", "--format", "%i")
    except SlurmError:
        return None
    return {step for step in listed.split() if step.startswith(f"{job}.") and step.partition(".")[2].isdecimal()}


def end(job: str, others: set[str] | None, tell: Callable[[str], None]) -> bool:
    """End steps that a program left running: they hold the GPUs. others: steps that were there before it; None: not
    known, and then none is ended. False: one stays, or may. In Slurm's books one does when its node was lost."""
    if others is None:
        tell("steps are left alone: Slurm did not say which ran before")
        return False
    left = _wait_until_ended(job, others)
    for step in sorted(left or ()):
        tell(f"step {step}, which was left running, is ended")
        with contextlib.suppress(SlurmError):
            slurm.ask("scancel", "--signal=KILL", step)
    return left == set() or _wait_until_ended(job, others) == set()


def _wait_until_ended(job: str, others: set[str]) -> set[str] | None:
    """Wait for steps, and return those that stay; None: Slurm does not say it, and they may."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        now = running(job)
        left = None if now is None else now - others
        if left == set() or time.monotonic() > deadline:
            return left
        time.sleep(1)
