"""The jobs that smoke submits say by how they end what Slurm promises: wait for them, and keep what Slurm says."""

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
    """One question about all of them at each look. A job that does not end in time leaves no file: no evidence.

    A job whose file is there is not looked at again. One that Slurm has forgotten is read from its accounting.
    """
    begun, pace = time.monotonic(), slurm.Pace(longest_s=5)
    left = [job for job in jobs if job.job_id and not (run_folder / "raw" / job.file).exists()]
    while left:
        with contextlib.suppress(SlurmError):  # the controller may be back at the next look
            states = slurm.states([job.job_id for job in left])
            for job in [job for job in left if states.get(job.job_id) in {None, *slurm.ENDED}]:
                said = slurm.ended_job(job.job_id)
                if said is None:
                    continue
                if said:
                    write_text(run_folder / "raw" / job.file, said)
                left.remove(job)
        left = [job for job in left if time.monotonic() - begun < job.seconds]
        if left:
            time.sleep(pace.seconds())
