"""A job, its logs and what is said of it: the values of `bringup why`."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypedDict

from bringup.why.job_log import JobLog
from bringup.why.places import Places, Step

ENDED_BY_OTHERS = ("Terminated", "Killed", "Exited with exit code 143")


@dataclass(frozen=True)
class Job:
    id: str
    user: str
    state: str
    exit_code: str = ""
    nodes: Sequence[str] = ()
    tasks: int = 0  # 0: not known
    started: str = ""
    ended: str = ""
    logs: Sequence[str] = ()  # paths; standard error first
    by: str = ""  # who cancelled it, where the accounting says so
    number: str = ""  # as SLURM_JOB_ID has it; of a task of an array, not its id
    partition: str = ""
    is_alone: bool = False  # it had its nodes, or all of their GPUs, for itself
    gpus: int = 0
    steps: Sequence[Step] = ()  # that srun started; none: the accounting does not say it
    is_in_order: bool = True  # tasks are numbered along the node list

    def places(self, log: JobLog) -> Places:
        return Places(self.nodes, self.tasks, self.steps, log, self.is_in_order)


@dataclass(frozen=True)
class Cause:
    kind: str  # the id of a signature, or: python, caught, crash, collective, stalled, cancelled, exit-code, none
    words: str
    node: str = ""
    rank: int | None = None
    task: int | None = None  # of srun, where the rank in it is not known
    stack: str = ""
    collective: str = ""
    evidence: str = ""
    do: str = ""

    @property
    def who(self) -> str:
        if self.rank is not None:
            return f"rank {self.rank}"
        return f"task {self.task}" if self.task is not None else ""


@dataclass
class Answer:
    job: Job
    cause: Cause
    then: list[str] = field(default_factory=list)  # what follows from it, or happens beside it
    nodes: dict[str, str] = field(default_factory=dict)  # unusual states, with their reasons
    not_seen: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Text:
    """A log of the job."""

    name: str
    text: str
    written: float  # seconds since 1970


class Place(TypedDict):
    node: str
    rank: int | None
    task: int | None


def speaker(job: Job, log: JobLog, rank: int | None, task: int | None, node: str = "") -> Place:
    """Whose line it is, by its labels. Without one, srun may say which task alone ended by itself. node: where it is
    known."""
    places = job.places(log)
    if rank is None and task is None and not node:
        alone = {(end.node, end.task) for end in log.ended if not end.words.startswith(ENDED_BY_OTHERS)}
        task = next(iter(alone))[1] if len(alone) == 1 else None
    if rank is None and task is not None and places.ranks_are_tasks:
        rank = task
    node = node or (job.nodes[0] if len(job.nodes) == 1 else "")
    node = node or (places.of_task(task) if task is not None else "")
    node = node or (places.of_rank(rank) if rank is not None else "")
    return Place(node=node, rank=rank, task=task if rank is None else None)


def in_short(cause: Cause) -> str:
    return f"{cause.who}{': ' if cause.who else ''}{cause.words} ({cause.evidence})"
