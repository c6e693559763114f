"""Waits for the jobs that smoke submits, for nodes that jobs of others hold, for the smoke phase of another run, and
for steps that a program left running."""

import contextlib
import fcntl
import os
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from bringup.kernel.characters import many
from bringup.kernel.errors import SlurmError
from bringup.kernel.facts import hostlist
from bringup.kernel.facts.names import by_reason
from bringup.kernel.records import write_text
from bringup.run import slurm


class Awaited(NamedTuple):
    file: str  # in raw/
    job_id: str  # 12, or 12_3 for a task of an array; empty: it was refused
    seconds: float  # that it may take


def keep_ended_jobs(run_folder: Path, jobs: Sequence[Awaited]) -> None:
    """Ask about all jobs in one request, at each look. A job that does not end in time leaves no file, so no evidence.

    A job whose file exists is not requested again. A job that slurmctld has forgotten is read from the accounting.
    """
    begun, pace = time.monotonic(), slurm.Pace(longest_s=5)
    left = [job for job in jobs if job.job_id and not (run_folder / "raw" / job.file).exists()]
    while left:
        with contextlib.suppress(SlurmError):  # the controller may be back at the next look
            states = slurm.states([job.job_id for job in left])
            for job in [job for job in left if states.get(job.job_id) in {None, *slurm.ENDED}]:
                if (record := slurm.ended_job(job.job_id)) is None:
                    continue
                if record:
                    write_text(run_folder / "raw" / job.file, record)
                left.remove(job)
        if left := [job for job in left if time.monotonic() - begun < job.seconds]:
            time.sleep(pace.seconds())


FULL = frozenset({"ALLOCATED", "COMPLETING"})
PARTLY = frozenset({"MIXED"})
UNSEEN = "held by jobs that this user may not see"
SMOKE = "smoke-"  # its jobs begin so (scripts/smoke_jobs.sh, smoke_parts.sh)
STEPS_END_S = 15  # that steps of an ended program may take to end by themselves
LONGEST_SMOKE_S = 600.0  # a job that nobody looks after any more may stay in the queue


@contextlib.contextmanager
def only_one(file: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Hold off every other run of this checkout on this cluster: two smoke phases that begin at once would each hold
    what the other one waits for. Where the filesystem has no locks, nothing is held off.

    A byte of the file stands for a cluster, by the configuration that Slurm's commands use.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    pace, cluster = slurm.Pace(), zlib.crc32(os.environ.get("SLURM_CONF", "").encode())
    with file.open("a") as stream:
        while True:
            try:
                fcntl.lockf(stream, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, cluster)
                break
            except BlockingIOError:
                tell("waiting for the smoke phase of another run of this checkout")
                time.sleep(pace.seconds())
            except OSError:
                break
        yield


def wait_for_smoke(tell: Callable[[str], None]) -> None:
    """Wait until no smoke phase of another run is running, but not for ever. Smoke has many small jobs, and its nodes
    look free between them; a phase that took them would block its next job. Raises SlurmError."""
    deadline, pace = time.monotonic() + LONGEST_SMOKE_S, slurm.Pace()
    while time.monotonic() < deadline:
        jobs = slurm.patiently(lambda: slurm.queued(SMOKE), tell)
        if not jobs:
            return
        job, user = jobs[0]
        tell(f"waiting for the smoke phase of another run ({many(len(jobs), 'job')}, the first is job {job} of {user})")
        time.sleep(pace.seconds())


def wait_until_free(names: Sequence[str], whole_nodes: bool, tell: Callable[[str], None]) -> None:
    """Wait until no job holds these nodes. whole_nodes: a partly used node is not free either.

    There is no limit, as for a batch job in the queue. The screen shows what it waits for. Raises SlurmError.
    """
    busy, pace = FULL | PARTLY if whole_nodes else FULL, slurm.Pace()
    while holders := _held(names, busy, tell):
        tell(f"waiting for {by_reason(holders)}")
        time.sleep(pace.seconds())


def _held(names: Sequence[str], busy: frozenset[str], tell: Callable[[str], None]) -> dict[str, str]:
    """Node -> the job that holds it."""
    known = slurm.patiently(lambda: slurm.nodes(names), tell)
    held_nodes = [name for name in names if name in known and busy & set(known[name].state.split("+"))]
    if not held_nodes:
        return {}
    holders: dict[str, str] = {}
    with contextlib.suppress(SlurmError):  # PrivateData may hide the jobs of others
        for job, user, nodes in slurm.running_on(held_nodes):
            holders |= dict.fromkeys(hostlist.expand(nodes), f"held by job {job} of {user}")
    return {name: holders.get(name, UNSEEN) for name in held_nodes}


def steps_of(job: str) -> set[str] | None:
    """List the numbered steps of a job that run now. None: Slurm does not say it."""
    with contextlib.suppress(SlurmError):
        return slurm.steps(job)
    return None


def end_steps(job: str, others: set[str] | None, tell: Callable[[str], None]) -> bool:
    """End steps that a program left running: they hold the GPUs. others: steps that were there before it; None: not
    known, and then none is ended. False: one stays, or may. In Slurm's books one does when its node was lost."""
    if others is None:
        tell("steps are left alone: Slurm did not say which ran before")
        return False
    left = _wait_until_ended(job, others)
    for step in sorted(left or ()):
        tell(f"step {step}, which was left running, is ended")
        with contextlib.suppress(SlurmError):
            slurm.cancel(step, "--signal=KILL")
    return left == set() or _wait_until_ended(job, others) == set()


def _wait_until_ended(job: str, others: set[str]) -> set[str] | None:
    """Wait for steps, and return those that stay; None: Slurm does not say it, and they may."""
    deadline = time.monotonic() + STEPS_END_S
    while True:
        now = steps_of(job)
        left = None if now is None else now - others
        if left == set() or time.monotonic() > deadline:
            return left
        time.sleep(1)
