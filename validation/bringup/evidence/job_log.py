"""The log of a job that bringup did not start: what its ranks raised, in which collective they waited, how they ended.

A line is believed about the place that its label names: srun's `3: ` (--label) is a task, `[rank3]:` of torch a rank.
Without a label, srun's own lines about the end of tasks name node and task.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

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
_GROUP = re.compile(
    r"\[PG (?:ID \d{1,9} PG GUID (?P<guid>[^\s()\]]{1,80})|(?P<number>\d{1,9})) ?(?P<name>\([^()\]]{1,80}\))?"
    r" Rank \d{1,9}\]"
)
_IN_GROUP = re.compile(r"\[Rank (\d{1,9})\]")
_AT_WORK = re.compile(r"\bat (?:NCCL )?work(?: sequence id)?: (\d{1,18})\b")
DEFAULT, UNKNOWN = "default", "?"  # process groups: of all ranks; one of some ranks, and not known which
_CHAINED = re.compile(r"(?:During handling of|The above exception was the direct cause of)\b")
_OF_THE_END = re.compile(r"\s|srun: |slurmstepd|\[[WEF][ \d]|Exception ignored in|terminate called|frame #")
"""Lines behind an exception that do not show a program going on."""
_HOST = re.compile(r"^\s*host\s*:\s*(\S+)")
_FAILED_RANK = re.compile(r"^\s*rank\s*:\s*(\d{1,9}) \(local_rank: (\d{1,9})\)")
_EXIT_CODE = re.compile(r"^\s*exitcode\s*:\s*[1-9]\d{0,8} \(pid")  # a signal has a minus
_TASKS = re.compile(r"tasks? (\d{1,9})")


@dataclass(frozen=True)
class Raised:
    """An exception with its traceback, or a fatal error of Python."""

    line: int
    rank: int | None
    task: int | None  # srun's number of it
    words: str
    frame: str  # `step (train.py:12)`: the innermost one outside of installed packages; empty: not known
    is_victim: bool  # its peer was lost, or it is the launcher of what failed
    is_fatal: bool = False  # a fatal error of Python: a program does not outlive it
    went_on: bool = False  # its label printed more
    raised_again: bool = False  # its label printed another traceback later, which is not chained to this one


@dataclass(frozen=True)
class Waited:
    """A rank whose collective took longer than its timeout."""

    line: int
    rank: int
    sequence: int
    operation: str  # ALLREDUCE of 9801523 elements
    group: str = ""  # its process group, by the name that all its ranks know; empty: not named


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
    starts: dict[int, str] = field(default_factory=dict)  # the first rank of a host -> the host, by the same list
    ranks_per_host: int = 0  # at least, by the same list
    exited: set[int] = field(default_factory=set)  # ranks that ended by themselves, says torchrun's list
    tasks: dict[int, int] = field(default_factory=dict)  # rank -> task, where lines carry both
    last_rank: int = -1  # the largest number of a rank that a label names


def read(text: str, nodes: Sequence[str]) -> JobLog:
    """Read a log. nodes: of the job, in Slurm's order."""
    log, waits = JobLog(raised=_raised(text)), dict[int, Waited]()
    # by task: launchers of several nodes print at once
    hosts, listed = dict[int | None, str](), dict[int | None, int]()
    for number, line in enumerate(map(cut, lines(text)), start=1):
        task, rank, rest = _labels(line)
        for message in SPEAKS.split(line) if "WorkNCCL" in line or "[PG " in line else ():
            work, speaker, group = _WORK.search(message), printed_by(message), _group(message)
            if speaker is None:
                continue
            if work is not None and speaker not in waits:
                size = f" of {work[3]} elements" if work[3] else ""
                in_group, own = _IN_GROUP.search(message), speaker if "[rank" in message else task
                group = group or (UNKNOWN if in_group and int(in_group[1]) != own else "")
                waits[speaker] = Waited(number, speaker, int(work[1]), f"{work[2]}{size}", group)
            elif group and speaker in waits and waits[speaker].group in ("", UNKNOWN):  # the next line names it
                at = work or _AT_WORK.search(message)
                if at is not None and int(at[1]) == waits[speaker].sequence:
                    waits[speaker] = replace(waits[speaker], group=group)
        if rank is not None:
            log.last_rank = max(log.last_rank, rank)
            if task is not None:
                log.tasks[rank] = task
        if match := _HOST.match(rest):
            hosts[task] = match[1].partition(".")[0]
        elif match := _FAILED_RANK.match(rest):
            listed[task], local = int(match[1]), int(match[2])
            log.ranks_per_host = max(log.ranks_per_host, 1 + local)
            if task in hosts:
                log.hosts[listed[task]] = log.starts[listed[task] - local] = hosts[task]
        elif _EXIT_CODE.match(rest) and task in listed:
            log.exited.add(listed[task])
    for end in slurm.launch_errors(text, "", nodes).observations:
        if end.quantity == "slurm.launch.error":
            task_words = _TASKS.match(end.why or "")
            words = str(end.value).partition("; ")[0]
            number = int(end.evidence.rpartition(":")[2])
            log.ended.append(Ended(number, end.subject, int(task_words[1]) if task_words else None, words))
    log.waited = list(waits.values())
    log.last_rank = max([log.last_rank, *waits])
    return log


def _group(message: str) -> str:
    """Without a GUID, only 0 is the same group in each process: torch 2.3 counts the others by itself."""
    match = _GROUP.search(message)
    if match is None:
        return ""
    if match["name"] == "(default_pg)" or "0" in (match["guid"], match["number"]):
        return DEFAULT
    return f"{match['guid']}{match['name'] or ''}" if match["guid"] else UNKNOWN


def _labels(line: str) -> tuple[int | None, int | None, str]:
    """Return (task, rank, the rest of the line)."""
    task = rank = None
    if match := LABEL.match(line):
        task, line = int(match[1]), line[match.end() :]
    if match := _RANK.match(line):
        rank, line = int(match[1]) if "rank" in match[0] else None, line[match.end() :]
    return task, rank, line


Label = tuple[int | None, int | None]  # task, rank


def speaker_of(line: str) -> Label:
    """Return the task and rank that wrote a line, where its label or its message names them."""
    task, rank, rest = _labels(line)
    return task, printed_by(rest) if rank is None else rank


@dataclass
class _Open:
    """A traceback that is being read."""

    frames: list[str] = field(default_factory=list)
    fatal: tuple[int, str] | None = None  # faulthandler's: the innermost frame comes first


def _raised(text: str) -> list[Raised]:
    """Ranks that print at once are told apart by their labels."""
    seen: list[Raised] = []
    newest: dict[Label, list[int]] = {}  # its last exception, and what it is chained to
    chained: set[Label] = set()
    open_by_label: dict[Label, _Open] = {}

    def ends(label: Label, raised: Raised) -> None:
        del open_by_label[label]
        newest.setdefault(label, []).append(len(seen))
        seen.append(raised)

    for number, line in enumerate(map(cut, lines(text)), start=1):
        task, rank, rest = _labels(line)
        label = task, rank
        fatal = _FATAL.match(rest)
        if fatal or _TRACEBACK.match(rest):
            open_by_label[label] = _Open(fatal=(number, fatal[1]) if fatal else None)
            if label not in chained:
                for place in newest.pop(label, ()):
                    seen[place] = replace(seen[place], raised_again=True)
            chained.discard(label)
        elif (known := open_by_label.get(label)) is not None:
            if frame := _FRAME.match(rest):
                known.frames.append(f"{frame['name']} ({frame['file']}:{frame['line']})")
            elif (not rest[:1].strip() and rest) or (known.fatal and not known.frames):  # source, markers, heads
                continue
            elif known.fatal is None and not rest:
                del open_by_label[label]
            elif known.fatal is None:
                is_victim = bool(LOST_PEERS.search(rest) or _LAUNCHERS.search(rest))
                ends(label, Raised(number, rank, task, rest.strip(), _own(known.frames[::-1]), is_victim))
            elif known.frames:
                ends(label, _fatal(label, known.fatal, known.frames))
        elif _CHAINED.match(rest):
            chained.add(label)
        elif rest and label in newest and not _OF_THE_END.match(rest):
            for place in newest[label]:
                if not seen[place].went_on:
                    seen[place] = replace(seen[place], went_on=True)
    return [*seen, *(_fatal(label, known.fatal, known.frames) for label, known in open_by_label.items() if known.fatal)]


def _fatal(label: Label, fatal: tuple[int, str], frames: Sequence[str]) -> Raised:
    return Raised(fatal[0], label[1], label[0], fatal[1], _own(frames), False, is_fatal=True)


def _own(frames: Sequence[str]) -> str:
    """frames: the innermost first."""
    outside = [frame for frame in frames if "site-packages" not in frame and "/lib/python3" not in frame]
    return next(iter([*outside, *frames]), "")
