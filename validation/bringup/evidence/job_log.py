"""The log of a job that bringup did not start: what its ranks raised, in which collective they waited, how they ended.

A line is believed about the place that its label names: srun's `3: ` (--label) is a task, `[rank3]:` of torch a rank.
Without a label, srun's own lines about the end of tasks name node and task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from bringup.evidence import slurm
from bringup.evidence.launcher import LOST_PEERS, SPEAKS, printed_by
from bringup.evidence.parsed import cut, lines
from bringup.evidence.speakers import LABEL

_RANK = re.compile(r"\s*\[(?:rank|default)(\d{1,9})\]:[ ]?")
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>.+)')
_TRACEBACK = re.compile(r"\s*Traceback \(most recent call last\):")
_FATAL = re.compile(r"\s*(Fatal Python error: .+)")
_LAUNCHERS = re.compile(r"(?:ChildFailedError|SignalException|ProcessExitedException)\b")
"""Raised by a launcher whose child failed: the child is the cause."""
_WORK = re.compile(
    r"WorkNCCL\(SeqNum=(\d{1,18}), OpType=(\w+)(?:, NumelIn=(\d{1,18}), NumelOut=\d+)?, Timeout\(ms\)=(\d{1,18})\)"
)
_HOST = re.compile(r"^\s*host\s*:\s*(\S+)")
_FAILED_RANK = re.compile(r"^\s*rank\s*:\s*(\d{1,9}) \(local_rank:")
_TASKS = re.compile(r"tasks? (\d{1,9})")


@dataclass(frozen=True)
class Raised:
    """An exception that nobody caught, or a fatal error of Python."""

    line: int
    rank: int | None
    task: int | None  # srun's number of it
    words: str
    frame: str  # `step (train.py:12)`: the innermost one outside of installed packages; empty: not known
    is_victim: bool  # its peer was lost, or it is the launcher of what failed


@dataclass(frozen=True)
class Waited:
    """A rank whose collective took longer than its timeout."""

    line: int
    rank: int
    sequence: int
    operation: str  # ALLREDUCE of 9801523 elements


@dataclass(frozen=True)
class Ended:
    """What srun says of a task."""

    line: int
    node: str
    task: int | None
    words: str  # Exited with exit code 1


@dataclass
class JobLog:
    raised: list[Raised] = field(default_factory=list)
    waited: list[Waited] = field(default_factory=list)
    ended: list[Ended] = field(default_factory=list)
    hosts: dict[int, str] = field(default_factory=dict)  # of ranks, as torchrun's last list names them
    tasks: dict[int, int] = field(default_factory=dict)  # rank -> task, where lines carry both


def read(text: str, nodes: Sequence[str]) -> JobLog:
    """nodes: of the job, in Slurm's order."""
    log = JobLog(raised=list(_raised(text)))
    host = ""
    for number, line in enumerate(map(cut, lines(text)), start=1):
        for message in SPEAKS.split(line) if "WorkNCCL" in line else ():
            work, rank = _WORK.search(message), printed_by(message)
            if work is not None and rank is not None and rank not in {known.rank for known in log.waited}:
                size = f" of {work[3]} elements" if work[3] else ""
                log.waited.append(Waited(number, rank, int(work[1]), f"{work[2]}{size}"))
        task, rank, rest = _labels(line)
        if task is not None and rank is not None:
            log.tasks[rank] = task
        host = match[1] if (match := _HOST.match(rest)) else host
        if (match := _FAILED_RANK.match(rest)) and host:
            log.hosts[int(match[1])] = host.partition(".")[0]
    for end in slurm.launch_errors(text, "", nodes).observations:
        if end.quantity == "slurm.launch.error":
            task_words = _TASKS.match(end.why or "")
            words = str(end.value).partition("; ")[0]
            number = int(end.evidence.rpartition(":")[2])
            log.ended.append(Ended(number, end.subject, int(task_words[1]) if task_words else None, words))
    return log


def _labels(line: str) -> tuple[int | None, int | None, str]:
    """(task, rank, the rest of the line)."""
    task = rank = None
    if match := LABEL.match(line):
        task, line = int(match[1]), line[match.end() :]
    if match := _RANK.match(line):
        rank, line = int(match[1]) if "rank" in match[0] else None, line[match.end() :]
    return task, rank, line


def speaker_of(line: str) -> tuple[int | None, int | None]:
    """(task, rank) that wrote a line, where its label or its message names them."""
    task, rank, rest = _labels(line)
    return task, printed_by(rest) if rank is None else rank


@dataclass
class _Open:
    """A traceback that is being read."""

    frames: list[str] = field(default_factory=list)
    fatal: tuple[int, str] | None = None  # faulthandler's: the innermost frame comes first


def _raised(text: str) -> Iterator[Raised]:
    """Ranks that print at once are told apart by their labels."""
    open_by_label: dict[tuple[int | None, int | None], _Open] = {}
    for number, line in enumerate(map(cut, lines(text)), start=1):
        task, rank, rest = _labels(line)
        label = task, rank
        if _TRACEBACK.match(rest):
            open_by_label[label] = _Open()
        elif match := _FATAL.match(rest):
            open_by_label[label] = _Open(fatal=(number, match[1]))
        elif (known := open_by_label.get(label)) is not None:
            if frame := _FRAME.match(rest):
                known.frames.append(f"{frame['name']} ({frame['file']}:{frame['line']})")
            elif (not rest[:1].strip() and rest) or (known.fatal and not known.frames):  # source, markers, heads
                continue
            elif known.fatal is None:
                del open_by_label[label]
                if rest:
                    is_victim = bool(LOST_PEERS.search(rest) or _LAUNCHERS.search(rest))
                    yield Raised(number, rank, task, rest.strip(), _own(known.frames[::-1]), is_victim)
            elif known.frames:
                del open_by_label[label]
                yield Raised(known.fatal[0], rank, task, known.fatal[1], _own(known.frames), False)
    for (task, rank), known in open_by_label.items():
        if known.fatal is not None:
            yield Raised(known.fatal[0], rank, task, known.fatal[1], _own(known.frames), False)


def _own(frames: Sequence[str]) -> str:
    """frames: the innermost first."""
    outside = [frame for frame in frames if "site-packages" not in frame and "/lib/python3" not in frame]
    return next(iter([*outside, *frames]), "")
