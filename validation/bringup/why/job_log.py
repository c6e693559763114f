"""The log of a job that bringup did not start: what its ranks raised, in which collective they waited, how they ended.

Without a label (tracebacks.py), srun's own lines about the end of tasks name node and task.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bringup.readers.launcher import FAILED_RANK, FIRST, SPEAKS, printed_by
from bringup.readers.srun import launch_errors
from bringup.why.tracebacks import Label, Raised, by_speaker, labels, raised_in

_WORK = re.compile(
    r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w+)(?:, NumelIn=(\d{1,18}), NumelOut=\d+)?, Timeout\(ms\)=(\d{1,18})\)"
)
_GROUP = re.compile(
    r"\[PG (?:ID \d{1,9} PG GUID (?P<guid>[^\s()\]]{1,80})|(?P<number>\d{1,9})) ?(?P<name>\([^()\]]{1,80}\))?"
    r" Rank \d{1,9}\]"
)
_IN_GROUP = re.compile(r"\[Rank (\d{1,9})\]")
_AT_WORK = re.compile(r"\bat (?:NCCL )?work(?: sequence id)?: (\d{1,18})\b")
_ENQUEUED = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (\d{1,18})\b")
_ABSENT = re.compile(
    r"Ranks? (\d{1,9})[\d, ]{0,200} failed to pass monitoredBarrier|send/recv from rank (\d{1,9})\. Please check"
)
_STEP = re.compile(r"\b(?:[Ss]tep|[Ii]ter(?:ation)?|[Ee]poch)\b[\s\"'=:#\[]{0,9}(\d{1,18})")
_ENDED = re.compile(
    r"(?:.{0,200}: line \d+: +\d+ )?"
    r"(Killed|Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception)"
    r"(?: \(core dumped\))?(?: {2,}.*)?$"
)
"""What a shell prints of a child that a signal ended."""
_CLOSING = re.compile(r"\*\*\* (?:JOB|STEP) .{0,200}CANCELLED AT|srun: (?:Job step aborted|Terminating StepId)")
DEFAULT, UNKNOWN = "default", "?"  # process groups: of all ranks; one of some ranks, and not known which
_HOST = re.compile(r"^\s*host\s*:\s*(\S+)")
_EXIT_CODE = re.compile(r"^\s*exitcode\s*:\s*[1-9]\d{0,8} \(pid")  # a signal has a minus
_TASKS = re.compile(r"tasks? (\d{1,9})")


@dataclass(frozen=True)
class Waited:
    """A rank whose collective took longer than its timeout; or how far one came that printed it for the others."""

    line: int
    rank: int
    sequence: int
    operation: str  # ALLREDUCE of 9801523 elements; empty: it did not wait, and had enqueued so many
    group: str = ""  # its process group, by the name that all its ranks know; empty: not named


@dataclass(frozen=True)
class Ended:
    """What srun says of a task, or the shell that started it."""

    line: int
    node: str  # empty: a shell says it
    task: int | None
    words: str  # Exited with exit code 1


@dataclass
class JobLog:
    raised: list[Raised] = field(default_factory=list)
    waited: list[Waited] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    by_shell: list[Ended] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)  # of ranks, as torchrun's last list names them
    starts: dict[int, str] = field(default_factory=dict)  # the first rank of a host -> the host, by the same list
    ranks_per_host: int = 0  # at least, by the same list
    exited: set[int] = field(default_factory=set)  # ranks that ended by themselves, says torchrun's list
    tasks: dict[int, int] = field(default_factory=dict)  # rank -> task, where lines carry both
    last_rank: int = -1  # the largest number of a rank that a label names
    absent: list[tuple[bool, int, int]] = field(default_factory=list)  # (by hearsay, line, rank) of a barrier of gloo
    failed_first: tuple[int, int] | None = None  # (line, rank), as torchrun says
    outlived: int = 0  # behind this line two more steps of a rank were printed
    closing: int = 0  # the line at which Slurm began to end the step; 0: it did not


def read(text: str, nodes: Sequence[str]) -> JobLog:
    """Read a log. nodes: of the job, in Slurm's order."""
    spoken = by_speaker(text)
    log, waits, is_first = JobLog(raised=raised_in(spoken)), dict[int, Waited](), False
    # by task: launchers of several nodes print at once
    hosts, listed = dict[int | None, str](), dict[int | None, int]()
    steps = dict[Label, list[tuple[int, int]]]()  # the last two lines of each that count up
    for number, (_, line) in enumerate(spoken, start=1):
        task, rank, rest = labels(line)
        for message in SPEAKS.split(line) if "WorkNCCL" in line or "[PG " in line else ():
            work, speaker, group = _WORK.search(message), printed_by(message), _group(message)
            if speaker is None or "raised the following async exception" in message:  # it failed, and did not wait
                continue
            if work is not None and speaker not in waits:
                size = f" of {work[3]} elements" if work[3] else ""
                in_group, own = _IN_GROUP.search(message), speaker if "[rank" in message else task
                group = group or (UNKNOWN if in_group and int(in_group[1]) != own else "")
                waits[speaker] = Waited(number, speaker, int(work[1]), f"{work[2]}{size}", group)
                continue
            at = work or _AT_WORK.search(message)
            if speaker not in waits and group and (came := at or _ENQUEUED.search(message)):
                waits[speaker] = Waited(number, speaker, int(came[1]), "a collective" if at else "", group)
            elif group and at and (wait := waits.get(speaker)) and int(at[1]) == wait.sequence:
                waits[speaker] = replace(wait, group=group) if wait.group in ("", UNKNOWN) else wait
        if absent := _ABSENT.search(line):
            log.absent.append((absent[1] is None, number, int(absent[1] or absent[2])))
        if step := _STEP.search(rest):
            before = [at for at in steps.get((task, rank), ()) if at[1] < int(step[1])]
            steps[task, rank] = [*before[-1:], (number, int(step[1]))]
        if log.closing == 0 and _CLOSING.search(line):
            log.closing = number
        elif (shell := _ENDED.match(rest)) and not rest.startswith("srun"):
            log.by_shell.append(Ended(number, "", task, shell[1]))
        if rank is not None:
            log.last_rank = max(log.last_rank, rank)
            if task is not None:
                log.tasks[rank] = task
        if match := _HOST.match(rest):
            hosts[task] = match[1].partition(".")[0]
        elif match := FAILED_RANK.search(rest):
            listed[task], local = int(match[1]), int(match[2])
            log.failed_first = log.failed_first or ((number, listed[task]) if is_first else None)
            log.ranks_per_host = max(log.ranks_per_host, 1 + local)
            if task in hosts:
                log.hosts[listed[task]] = log.starts[listed[task] - local] = hosts[task]
        elif FIRST.search(rest):
            is_first = True
        elif _EXIT_CODE.match(rest) and task in listed:
            log.exited.add(listed[task])
    for end in launch_errors(text, "", nodes).observations:
        if end.quantity == "slurm.launch.error":
            task_words = _TASKS.match(end.why or "")
            words = str(end.value).partition("; ")[0]
            number = int(end.evidence.rpartition(":")[2])
            log.ended.append(Ended(number, end.subject, int(task_words[1]) if task_words else None, words))
    log.outlived = max((both[0][0] for both in steps.values() if len(both) == 2), default=0)
    log.waited = list(waits.values())
    log.last_rank = max([log.last_rank, *waits, *(each.rank for each in log.raised if each.rank is not None)])
    return log


def _group(message: str) -> str:
    """Without a GUID, only 0 is the same group in each process: torch 2.3 counts the others by itself."""
    match = _GROUP.search(message)
    if match is None:
        return ""
    if match["name"] == "(default_pg)" or "0" in (match["guid"], match["number"]):
        return DEFAULT
    return f"{match['guid']}{match['name'] or ''}" if match["guid"] else UNKNOWN
