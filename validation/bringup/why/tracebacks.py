"""What ranks raised: exceptions with their tracebacks, those that lost it on the way, and fatal errors of Python.

A line is believed about the place that its label names: srun's `3: ` (--label) is a task, `[rank3]:` of torch a rank.
What other launchers put before a line (Ray, pdsh, mpirun, kubectl) tells apart who printed it, and names no place.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bringup.kernel.facts.parser_result import cut, lines
from bringup.kernel.facts.speakers import LABEL
from bringup.readers.launcher import FAILED_RANK, LOST_PEERS, printed_by

_PREFIX = re.compile(
    r"(?:\x1b\[\d+m)?(\((?:\w{1,80} )?pid=\d+(?:, ip=[\d.]+)?\))(?:\x1b\[0m)? ?"  # Ray
    r"|\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) (?:std(?:err|out) [FP] )?"  # kubectl, containerd
    r"|(\[\d+,\d+\])<std(?:err|out)>: ?"  # mpirun --tag-output
)
_HOST_PREFIX = re.compile(r"([a-zA-Z][\w.-]{0,100}\d|(?:\d{1,3}\.){3}\d{1,3})(?: +\||:) ")  # pdsh; docker compose
_BEHIND_A_HOST = (
    r'(?=(?:\[rank\d{1,9}\]: ?)?(?:Traceback \(most recent|  File "|(?:\w+\.)*\w+Error: ))'  # deepspeed with pdsh: both
)
_HOSTS = re.compile(f"^{_HOST_PREFIX.pattern}{_BEHIND_A_HOST}", re.MULTILINE)
_RANK = re.compile(r"\s*\[(?:rank|default)(\d{1,9})\]:[ ]?")
FRAME = re.compile(r'\s+File "(?P<file>[^"]+)", line (?P<line>\d+),? in (?P<name>.+)')
_TRACE = re.compile(
    r"\s*(?P<listed>traceback : )?(?P<original>Original )?Traceback \(most recent call last\):"
    r"(?: \(RANK (?P<rank>\d{1,9})\))?\s*$"  # with more behind it NumPy 2 warns of a module built for NumPy 1
)
_UNCAUGHT = re.compile(r"\[rank\d{1,9}\]: (?:(?:Original )?Traceback |  File )")
"""torch's excepthook prints its label with a blank, of what nobody caught; torchrun's --tee prints it without."""
_IGNORED = re.compile(r"Exception ignored (?:in|while)\b|Exception in (?:thread|callback) ")
"""Behind it stands what the program went on without."""
_BARE = re.compile(r"(?:\w+\.)*(?:\w+Error|\w*Exception): \S")  # a log filter took its traceback, or a launcher repeats
_CUT_OFF = re.compile(r'\s+File "[^"]+", line \d+, in ')  # of a traceback whose head is missing
_TORN = re.compile(r",? ?line \d+, in ")  # of a frame that a terminal broke
_NAMED = re.compile(r"(?:\w+\.)*\w*(?:Error|Exception|Interrupt)\b(?::|$)")
_RANKS = re.compile(r"CheckpointException ranks:dict_keys\(\[(\d{1,9})")  # torch says whose exceptions it gathered
_FATAL = re.compile(r"\s*(Fatal Python error: .+)")
_LAUNCHERS = re.compile(r"(?:ChildFailedError|SignalException|ProcessExitedException)\b")
"""Raised by a launcher whose child failed: the child is the cause."""
_WHILE_IT_RAN = "num_nodes_waiting"  # torchrun asks so after all have started
_CHAINED = re.compile(r"(?:During handling of|The above exception was the direct cause of)\b")
_OF_THE_END = re.compile(
    r"\s|srun: |slurmstepd|\[[WEF][ \d]|Exception ignored in|terminate called|frame #|nccl\w+: |Last error:"
    r"|CUDA kernel errors|Set TORCH|You can suppress|For debugging|Compile with|Search for|Device-side"
)
"""Lines behind an exception that do not show a program going on."""

Label = tuple[int | None, int | None]  # task, rank
_Speaker = tuple[int | None, int | None, str]  # and what a launcher put before the line


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
    is_ignored: bool = False  # Python says so, or it is one of its own end
    is_uncaught: bool = False  # Python's excepthook printed it
    went_on: bool = False  # its label printed more
    raised_again: bool = False  # its label printed another traceback later, which is not chained to this one


def by_speaker(text: str) -> list[tuple[str, str]]:
    """Return each line as (who printed it, as the launcher writes it; the line without that)."""
    hosts, spoken = set(_HOSTS.findall(text)), list[tuple[str, str]]()
    for line in map(cut, lines(text)):
        host = _HOST_PREFIX.match(line) if hosts else None
        match = host if host and host[1] in hosts else _PREFIX.match(line)
        spoken.append(("".join(filter(None, match.groups())), line[match.end() :]) if match else ("", line))
    return spoken


def labels(line: str) -> tuple[int | None, int | None, str]:
    """Return (task, rank, the rest of the line)."""
    task = rank = None
    if match := LABEL.match(line):
        task, line = int(match[1]), line[match.end() :]
    while match := _RANK.match(line):  # of --tee, and behind it of the excepthook
        rank, line = int(match[1]) if "rank" in match[0] else rank, line[match.end() :]
    return task, rank, line


def speaker_of(line: str) -> Label:
    """Return the task and rank that wrote a line, where its label or its message names them."""
    task, rank, rest = labels(line)
    return task, printed_by(rest) if rank is None else rank


@dataclass
class _Open:
    """A traceback that is being read."""

    frames: list[str] = field(default_factory=list)
    fatal: tuple[int, str] | None = None  # faulthandler's: the innermost frame comes first
    of: int | None = None  # the rank that it is of, where another one prints it
    indent: str = ""  # before its lines, in torchrun's last list
    is_ignored: bool = False
    is_uncaught: bool = False
    is_cut_off: bool = False  # a log begins inside of it
    asserted: str = ""  # the source of its last frame, where it is an assertion


def raised_in(by_speaker: Iterable[tuple[str, str]]) -> list[Raised]:
    """Read the lines of a log. Ranks that print at once are told apart by their labels."""
    seen: list[Raised] = []
    newest: dict[_Speaker, list[int]] = {}  # its last exception, and what it is chained to
    chained: set[_Speaker] = set()
    open_by_label: dict[_Speaker, _Open] = {}
    unfinished: dict[_Speaker, int] = {}  # the next line says more of it
    ignored: set[_Speaker] = set()  # the next traceback is of what the program goes on without
    listed: dict[_Speaker, int] = {}  # the rank that torchrun's list is at

    def ends(label: _Speaker, raised: Raised) -> None:
        open_by_label.pop(label, None)
        if raised.words.endswith(":"):
            unfinished[label] = len(seen)
        newest.setdefault(label, []).append(len(seen))
        seen.append(raised)

    for number, (who, line) in enumerate(by_speaker, start=1):
        task, rank, rest = labels(line)
        label = task, rank, who
        if (known := open_by_label.get(label)) and known.indent:
            rest = rest.removeprefix(known.indent)
        fatal, head = _FATAL.match(rest), _TRACE.match(rest)
        if fatal or head:
            of = int(head["rank"]) if head and head["rank"] else None
            made = open_by_label[label] = _Open(fatal=(number, fatal[1]) if fatal else None, of=of)
            made.is_ignored, made.is_uncaught = label in ignored, _UNCAUGHT.search(line) is not None
            ignored.discard(label)
            if head and head["listed"]:
                made.of, made.indent = listed.get(label), "  "
            if head and (head["original"] or head["rank"]):  # the one before repeats this one
                for place in newest.pop(label, ()):
                    words, is_victim = seen[place].words, seen[place].is_victim
                    repeats = bool(_RANKS.search(words)) or "Caught " in words
                    seen[place] = replace(seen[place], is_victim=is_victim or repeats)
            elif label not in chained:
                for place in newest.pop(label, ()):
                    seen[place] = replace(seen[place], raised_again=True)
            chained.discard(label)
        elif _IGNORED.match(rest):
            open_by_label.pop(label, None)
            ignored.add(label)
        elif known is not None:
            if frame := FRAME.match(rest):
                known.frames.append(f"{frame['name']} ({frame['file']}:{frame['line']})")
                known.asserted = ""
            elif _TORN.match(rest):
                continue
            elif (not rest[:1].strip() and rest) or (known.fatal and not known.frames):  # source, markers, heads
                known.asserted = rest.strip() if rest.lstrip().startswith("assert ") else known.asserted
            elif (known.fatal is None and not rest) or (known.is_cut_off and not _NAMED.match(rest)):
                del open_by_label[label]
            elif known.fatal is None:
                ends(label, _exception(number, label, rest, known))
            elif known.frames:
                ends(label, _fatal(label, known.fatal, known.frames))
        elif label not in newest and _CUT_OFF.match(rest) and (frame := FRAME.match(rest)):
            frames = [f"{frame['name']} ({frame['file']}:{frame['line']})"]
            open_by_label[label] = _Open(frames, is_cut_off=True, is_uncaught=_UNCAUGHT.search(line) is not None)
        elif _CHAINED.match(rest):
            chained.add(label)
        elif rest and label in unfinished:
            place = unfinished.pop(label)
            words = seen[place].words
            words = f"{words} {rest.strip()}" if words.endswith(":") else f"{rest.strip()} ({words})"
            seen[place] = replace(seen[place], words=words, is_victim=_is_victim(words))
        elif rest.strip() == "Last error:" and label in newest:
            unfinished[label] = newest[label][-1]
        elif match := FAILED_RANK.search(rest):
            listed[label] = int(match[1])
        elif _BARE.match(rest) and not _OF_THE_END.match(rest) and (label in ignored or not _is_victim(rest)):
            ends(label, replace(_exception(number, label, rest, _Open(is_ignored=label in ignored)), is_bare=True))
            ignored.discard(label)
        elif rest and label in newest and not _OF_THE_END.match(rest):
            for place in newest[label]:
                if not seen[place].went_on:
                    seen[place] = replace(seen[place], went_on=True)
    return [*seen, *(_fatal(label, known.fatal, known.frames) for label, known in open_by_label.items() if known.fatal)]


def _is_victim(words: str) -> bool:
    return bool(LOST_PEERS.search(words) or _LAUNCHERS.search(words))


def _exception(line: int, label: _Speaker, rest: str, known: _Open) -> Raised:
    task, rank, _ = label
    whose = _RANKS.search(rest)
    if (of := int(whose[1]) if whose else known.of) is not None:
        task, rank = None, of
    if rest.strip() == "AssertionError" and known.asserted:
        rest = f"AssertionError: {known.asserted}"
    called = " ".join(frame.partition(" (")[0] for frame in known.frames)
    is_ignored = known.is_ignored or "_run_finalizers" in called  # of multiprocessing, at the end of a process
    is_victim = _is_victim(rest) or _WHILE_IT_RAN in called
    raised = Raised(line, rank, task, rest.strip(), _own(known.frames[::-1]), is_victim and not is_ignored, called)
    return replace(raised, is_ignored=is_ignored, is_uncaught=known.is_uncaught)


def _fatal(label: _Speaker, fatal: tuple[int, str], frames: Sequence[str]) -> Raised:
    return Raised(fatal[0], label[1], label[0], fatal[1], _own(frames), False, is_fatal=True)


def _own(frames: Sequence[str]) -> str:
    """frames: the innermost first."""
    outside = [frame for frame in frames if "site-packages" not in frame and "/lib/python3" not in frame]
    return next(iter([*outside, *frames]), "")
