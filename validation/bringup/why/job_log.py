"""The log of a job that bringup did not start: what its ranks raised, in which collective they waited, how they ended.

A line is believed about the place that its label names: srun's `3: ` (--label) is a task, `[rank3]:` of torch a rank.
Without a label, srun's own lines about the end of tasks name node and task.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from bringup.kernel.facts.parser_result import cut, lines
from bringup.kernel.facts.speakers import LABEL
from bringup.readers.launcher import LOST_PEERS, SPEAKS, printed_by
from bringup.readers.srun import launch_errors

_RANK = re.compile(r"\s*\[(?:rank|default)(\d{1,9})\]:[ ]?")
_FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>.+)')
_TRACE = re.compile(r"\s*(?P<original>Original )?Traceback \(most recent call last\):(?: \(RANK (?P<rank>\d{1,9})\))?")
_BARE = re.compile(r"(?:\w+\.)*\w+(?:Error|Exception): \S")  # a log filter took its traceback, or a launcher repeats it
_RANKS = re.compile(r"CheckpointException ranks:dict_keys\(\[(\d{1,9})")  # torch says whose exceptions it gathered
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
_ENQUEUED = re.compile(r"[Ll]ast enqueued (?:NCCL )?work: (\d{1,18})\b")
_ABSENT = re.compile(
    r"Ranks? (\d{1,9})[\d, ]{0,200} failed to pass monitoredBarrier|send/recv from rank (\d{1,9})\. Please check"
)
_STEP = re.compile(r"\b(?:[Ss]tep|[Ii]ter(?:ation)?|[Ee]poch)\b[\s\"'=:#\[]{0,9}(\d{1,18})")
_ENDED = re.compile(
    r"(?:.{0,200}: line \d+: +\d+ )?(Killed|Segmentation fault|Bus error|Aborted|Illegal instruction)"
    r"(?: \(core dumped\))?(?: {2,}.*)?$"
)
"""What a shell prints of a child that a signal ended."""
_CLOSING = re.compile(r"\*\*\* (?:JOB|STEP) .{0,200}CANCELLED AT|srun: (?:Job step aborted|Terminating StepId)")
DEFAULT, UNKNOWN = "default", "?"  # process groups: of all ranks; one of some ranks, and not known which
_CHAINED = re.compile(r"(?:During handling of|The above exception was the direct cause of)\b")
_OF_THE_END = re.compile(
    r"\s|srun: |slurmstepd|\[[WEF][ \d]|Exception ignored in|terminate called|frame #|nccl\w+: |Last error:"
    r"|CUDA kernel errors|For debugging|Compile with|Search for|Device-side"
)
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
    is_victim: bool  # its peer was lost, or it is the launcher of what failed, or repeats another's
    called: str = ""  # its functions
    is_bare: bool = False  # without a traceback
    is_fatal: bool = False  # a fatal error of Python: a program does not outlive it
    went_on: bool = False  # its label printed more
    raised_again: bool = False  # its label printed another traceback later, which is not chained to this one


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
    outlived: int = 0  # behind this line two more steps of a rank were printed
    closing: int = 0  # the line at which Slurm began to end the step; 0: it did not


def read(text: str, nodes: Sequence[str]) -> JobLog:
    """Read a log. nodes: of the job, in Slurm's order."""
    log, waits = JobLog(raised=_raised(text)), dict[int, Waited]()
    # by task: launchers of several nodes print at once
    hosts, listed = dict[int | None, str](), dict[int | None, int]()
    steps = dict[Label, list[tuple[int, int]]]()  # the last two lines of each that count up
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
        elif match := _FAILED_RANK.match(rest):
            listed[task], local = int(match[1]), int(match[2])
            log.ranks_per_host = max(log.ranks_per_host, 1 + local)
            if task in hosts:
                log.hosts[listed[task]] = log.starts[listed[task] - local] = hosts[task]
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
    of: int | None = None  # the rank that it is of, where another one prints it


def _raised(text: str) -> list[Raised]:
    """Ranks that print at once are told apart by their labels."""
    seen: list[Raised] = []
    newest: dict[Label, list[int]] = {}  # its last exception, and what it is chained to
    chained: set[Label] = set()
    open_by_label: dict[Label, _Open] = {}
    unfinished: dict[Label, int] = {}  # the next line says more of it

    def ends(label: Label, raised: Raised) -> None:
        open_by_label.pop(label, None)
        if raised.words.endswith(":"):
            unfinished[label] = len(seen)
        newest.setdefault(label, []).append(len(seen))
        seen.append(raised)

    for number, line in enumerate(map(cut, lines(text)), start=1):
        task, rank, rest = _labels(line)
        label = task, rank
        fatal, head = _FATAL.match(rest), _TRACE.match(rest)
        if fatal or head:
            of = int(head["rank"]) if head and head["rank"] else None
            open_by_label[label] = _Open(fatal=(number, fatal[1]) if fatal else None, of=of)
            if head and (head["original"] or head["rank"]):  # the one before repeats this one
                for place in newest.pop(label, ()):
                    words, is_victim = seen[place].words, seen[place].is_victim
                    repeats = bool(_RANKS.search(words)) or "Caught " in words
                    seen[place] = replace(seen[place], is_victim=is_victim or repeats)
            elif label not in chained:
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
                ends(label, _exception(number, label, rest, known))
            elif known.frames:
                ends(label, _fatal(label, known.fatal, known.frames))
        elif _CHAINED.match(rest):
            chained.add(label)
        elif rest and label in unfinished:
            place = unfinished.pop(label)
            words = seen[place].words
            words = f"{words} {rest.strip()}" if words.endswith(":") else f"{rest.strip()} ({words})"
            seen[place] = replace(seen[place], words=words, is_victim=_is_victim(words))
        elif rest.strip() == "Last error:" and label in newest:
            unfinished[label] = newest[label][-1]
        elif _BARE.match(rest) and not _OF_THE_END.match(rest) and not _is_victim(rest):
            ends(label, replace(_exception(number, label, rest, _Open()), is_bare=True))
        elif rest and label in newest and not _OF_THE_END.match(rest):
            for place in newest[label]:
                if not seen[place].went_on:
                    seen[place] = replace(seen[place], went_on=True)
    return [*seen, *(_fatal(label, known.fatal, known.frames) for label, known in open_by_label.items() if known.fatal)]


def _is_victim(words: str) -> bool:
    return bool(LOST_PEERS.search(words) or _LAUNCHERS.search(words))


def _exception(line: int, label: Label, rest: str, known: _Open) -> Raised:
    task, rank = label
    whose = _RANKS.search(rest)
    if (of := int(whose[1]) if whose else known.of) is not None:
        task, rank = None, of
    called = " ".join(frame.partition(" (")[0] for frame in known.frames)
    return Raised(line, rank, task, rest.strip(), _own(known.frames[::-1]), _is_victim(rest), called)


def _fatal(label: Label, fatal: tuple[int, str], frames: Sequence[str]) -> Raised:
    return Raised(fatal[0], label[1], label[0], fatal[1], _own(frames), False, is_fatal=True)


def _own(frames: Sequence[str]) -> str:
    """frames: the innermost first."""
    outside = [frame for frame in frames if "site-packages" not in frame and "/lib/python3" not in frame]
    return next(iter([*outside, *frames]), "")
