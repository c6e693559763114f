"""Waits for the jobs that smoke submits, and keeps Slurm's record of how each ended."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bringup.errors import SlurmError
from bringup.records import write_text
from bringup.run import slurm


@dataclass(frozen=True)
class Awaited:
    file: str  # in raw/
    job_id: str  # 12, or 12_3 for a task of an array; empty: it was refused
    seconds: float  # that it may take


def keep_ended_jobs(run_folder: Path, jobs: Sequence[Awaited]) -> None:
    """Each look is one request about all jobs. A job that does not end in time leaves no file, so no evidence.

    A job whose file exists is not requested again. A job that slurmctld has forgotten is read from the accounting.
    """
    begun, pace = time.monotonic(), slurm.Pace(longest_s=5)
    left = [job for job in jobs if job.job_id and not (run_folder / "raw" / job.file).exists()]
    while left:
        with contextlib.suppress(SlurmError):  # the controller may be back at the next look
            states = slurm.states([job.job_id for job in left])
            for job in [job for job in left if states.get(job.job_id) in {None, *slurm.ENDED}]:
                record = slurm.ended_job(job.job_id)
                if record is None:
                    continue
                if record:
                    write_text(run_folder / "raw" / job.file, record)
                left.remove(job)
        left = [job for job in left if time.monotonic() - begun < job.seconds]
        if left:
            time.sleep(pace.seconds())
