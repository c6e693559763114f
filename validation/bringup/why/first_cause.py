"""The first cause of a job: Slurm's word about it, its nodes and its logs -> a cause with its place. Pure.

What a rank raised, or a known fault in a log, comes before what follows from it: a collective in which others waited, a
lost peer, Slurm's end of the job. Of several, the first line counts.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace

from bringup.kernel.characters import many
from bringup.kernel.records import Record, Sign, known
from bringup.readers.known import signs, xid
from bringup.readers.known.exit_codes import EXIT_CODES, SIGNALS
from bringup.readers.known.signatures import SIGNATURES
from bringup.readers.node_states import Node
from bringup.readers.srun import NODE_FAILURE
from bringup.why import collective, job_log
from bringup.why.job_log import Ended, JobLog
from bringup.why.places import HOW_TO_LEARN
from bringup.why.records import ENDED_BY_OTHERS, Answer, Cause, Job, Place, Text, in_short, speaker
from bringup.why.tracebacks import Raised, speaker_of


class _Ends(Record):
    by_slurm: dict[str, str]  # state -> signature
    by_code: dict[str, str]  # exit code -> signature
    in_short: dict[str, str]  # state -> words
    next: dict[str, str]  # kind of a cause -> what to do


_ENDS = known("ends_of_jobs", _Ends)
STALL_S = 600
_GOES_ON = ("RUNNING", "SUSPENDED", "TIMEOUT", "CANCELLED")  # no rank ended it
_NO_LINE, _STATE = "no line of its logs says why", "Slurm's state of the job"
_WEAK = ("exit-code", "killed")  # how a task ended, where nothing says why
UNEXPLAINED = (*_WEAK, "none", "crash")
_LEFT = "outlived"
_BESIDE = ("caught", _LEFT, "of-program")  # the job went on behind it, or may have
_FIRST = "failed-first"
_HARMLESS = "harmless"  # ended no job: it is over, was corrected, or asks for nothing
_HINT = "nccl.warning"  # says less than who ended
_OF_GOOD_NODES_TOO = "host.port-polling"  # nothing may be plugged in there
_ENDED_FIRST, _LINES_BEFORE = "torch.rank-ended", 10
_OF_A_NODE = ("slurm.out-of-memory", "slurm.node-failure")
_OF_THE_JOB = ("slurm.time-limit", "slurm.preempted", "slurm.requeued", "slurm.cancelled")  # whichever node prints it
_OF_NODE = re.compile(
    r"slurmstepd-(\S+?): error|error: (\S+?): task|ode failure on (\S+?)[\s,]*$|on node ([\w.-]+)"
    r"|^(\S+): Test (?:CUDA|NCCL) failure"
)
_XID = "gpu.xid"
_OF_NONE = ("nccl.watchdog", "slurm.step-waits")  # every rank says the first of itself; srun the second, and no task
_OF_THE_PROGRAM = "NVIDIA's table gives it to the program: nothing is to be done for the node"
_OF_A_SCRIPT = re.compile(r"slurm_script: line \d+: ")
_STORE = re.compile(
    r"connection to the C10d store has failed|[Ff]ailed to recv, got 0 bytes|(?:recvValue|sendBytes|recvBytes) failed"
)
_OF_NCCL = re.compile(r"(\S+:\d+:\d+) \[\d+\] .*NCCL (?:WARN|ATTN) ")
_BEHIND = 40  # lines, in which other ranks speak, too
_SIGNAL = re.compile(
    r"(?:Fatal Python error: )?(Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception)"
)


def judged(
    job: Job, texts: Sequence[Text], nodes: Mapping[str, Node], *, quiet_s: float = 0.0, stall_s: float = STALL_S
) -> Answer:
    """Find the first cause. Pure. quiet_s: for how many seconds none of the logs has grown."""
    logs = [(text, job_log.read(text.text, job.nodes)) for text in texts]
    causes = [cause for text, log in logs for cause in _causes(job, text, log)]
    victims = [_raised(job, text, log, raised) for text, log in logs for raised in log.raised if raised.is_victim]
    waits = [wait for text, log in logs if (wait := collective.waited(job, text, log)) is not None]
    first = [_failed_first(job, text, log, *log.failed_first) for text, log in logs if log.failed_first is not None]
    unusual = {
        name: f"{node.state.lower()}{f': {_reason(node.reason)}' if node.reason else ''}"
        for name, node in nodes.items()
        if not node.is_usable or node.reason
    }
    cause = _first(job, causes, waits, [*first, *victims], unusual)
    if cause.kind == "exit-code" and cause.words.endswith(_NO_LINE) and not texts:
        unread = "its logs could not be read" if job.logs else "it has no log of its own"
        cause = replace(cause, words=f"{cause.words.removesuffix(_NO_LINE)}{unread}")
    if job.state == "RUNNING" and cause.kind == "none" and quiet_s > stall_s:
        words = f"it runs, and none of its logs has grown for {quiet_s:.0f} s"
        cause = Cause("stalled", words, do="bringup why JOB --on-nodes shows what its processes do")
    if job.state == "COMPLETED":
        cause = Cause("none", "it ended well: exit code 0")
    # Slurm lists only the nodes that it still waits for
    stuck = Cause("completing", _ENDS.in_short["COMPLETING"], node=job.nodes[0] if len(job.nodes) == 1 else "")
    if job.state == "COMPLETING" and cause.kind in (*UNEXPLAINED, "cancelled", "slurm.cancelled"):
        cause = stuck
    if cause.rank is not None and not cause.node:
        known = [node for _, log in logs if (node := job.places(log).of_rank(cause.rank))]
        cause = replace(cause, node=next(iter(known), ""))
    cause = _alike(job, cause, causes)
    cause = replace(cause, do=cause.do or _ENDS.next.get("python" if cause.kind == "caught" else cause.kind, ""))
    then = [in_short(each) for each in [*causes, *waits, *victims] if each.evidence != cause.evidence]
    then[:0] = [stuck.words] if job.state == "COMPLETING" and cause.kind != stuck.kind else []
    not_seen = [f"the node of {cause.who}: {HOW_TO_LEARN}"] if cause.who and not cause.node else []
    return Answer(job, cause, list(dict.fromkeys(then))[:4], unusual, not_seen)


def _reason(reason: str) -> str:
    """Say what it means where it is a known fault in Slurm's own words, such as `Kill task failed`."""
    known = signs.match(reason)
    return f"{reason} ({known.cause}; {known.do})" if known is not None and known.area == "Slurm" else reason


def _first(job: Job, causes: list[Cause], waits: list[Cause], victims: list[Cause], unusual: dict[str, str]) -> Cause:
    by_slurm = _ENDS.by_slurm.get(job.state) or _ENDS.by_code.get(job.exit_code)
    if by_slurm in ("slurm.out-of-memory", "slurm.node-failure", "slurm.preempted", "slurm.boot"):
        named = next((cause for cause in causes if cause.kind == by_slurm and cause.node), None)
        return named or _by_slurm(by_slurm, unusual)
    strong = [cause for cause in causes if cause.kind not in (*_WEAK, *_BESIDE, _HINT, _HARMLESS)]
    roles = {kind: SIGNATURES[kind].role if kind in SIGNATURES else "root" for kind in {each.kind for each in strong}}
    roots, maybe = ([cause for cause in strong if roles[cause.kind] == role] for role in ("root", "either"))
    hints = [cause for cause in causes if cause.kind == _HINT]
    consequences = [cause for cause in (*strong, *hints) if cause.kind not in _OF_THE_JOB]
    caught = [cause for cause in (*causes, *victims) if cause.kind in _BESIDE and job.state not in _GOES_ON]
    ends = [cause for cause in consequences if cause.kind == _ENDED_FIRST]
    raised = [cause for cause in caught if cause.kind == "caught" and any(_is_before(cause, end) for end in ends)]
    consequences = [*raised[-1:], *consequences]
    if job.state == "UNKNOWN":  # nothing says that it failed at all
        caught = [cause for cause in caught if cause.kind != _LEFT]
        consequences = [cause for cause in consequences if cause.kind != _OF_GOOD_NODES_TOO]
    if first := [*roots, *maybe, *waits]:
        return first[0]
    if by_slurm is not None:
        return _by_slurm(by_slurm, unusual)
    if job.state == "CANCELLED":
        return Cause("cancelled", f"it was cancelled{f' by {job.by}' if job.by else '; by whom, the accounting knows'}")
    if job.state == "DEADLINE":
        return Cause("deadline", "its deadline (--deadline) passed before it ended", evidence=_STATE)
    for step in (step for step in job.steps if step.state == "OUT_OF_MEMORY"):  # of the job itself, Slurm says FAILED
        node = step.nodes[0] if len(step.nodes) == 1 else ""
        return replace(_by_slurm("slurm.out-of-memory", unusual), node=node, evidence="Slurm's state of a step")
    exits, killed = ([cause for cause in causes if cause.kind == kind] for kind in _WEAK)
    first = [cause for cause in victims if cause.kind == _FIRST]
    lost = [*first, *_store([*victims, *causes]), *(each for each in victims if each.kind not in _BESIDE)]
    if later := [*killed, *lost, *consequences, *caught[-1:], *exits]:
        return later[0]
    if job.state == "FAILED" or job.exit_code not in ("", "0:0"):
        code, _, signal = job.exit_code.partition(":")
        number = 128 + int(signal) if signal.isdecimal() and signal != "0" else int(code or 0)
        meaning = f": {EXIT_CODES[number]}" if number in EXIT_CODES else ""
        ended = f"its script ended with {number}{meaning}" if job.exit_code else "it failed"
        return Cause("exit-code", f"{ended}; {_NO_LINE}")
    return Cause("none", _ENDS.in_short.get(job.state, "nothing speaks against it"))


def _is_before(cause: Cause, end: Cause) -> bool:
    """Whether it stands right before the line in which torchrun says who ended."""
    (text, _, line), (of, _, last) = cause.evidence.rpartition(":"), end.evidence.rpartition(":")
    return text == of and 0 < int(last) - int(line) <= _LINES_BEFORE


def _alike(job: Job, cause: Cause, causes: Sequence[Cause]) -> Cause:
    """Name no place where every node of the job ended so, and most of its tasks: the fault is in what they share."""
    if not cause.node or len(job.nodes) < 2:
        return cause
    like = [each for each in causes if each.kind == cause.kind and _shape(each) == _shape(cause)]
    are_most = cause.kind in (*_WEAK, "crash") or 2 * len({each.who for each in like}) >= job.tasks
    if not are_most or not {each.node for each in like} >= set(job.nodes):
        return cause
    words = f"{cause.words}; all {len(job.nodes)} nodes ended so: look at what they share, not at one of them"
    return replace(cause, words=words, node="", rank=None, task=None)


def _failed_first(job: Job, text: Text, log: JobLog, line: int, rank: int) -> Cause:
    words = "it failed first, as torchrun says, and none of its own lines is here"
    do = "its lines before torchrun's list; @record of torch.distributed.elastic on main() puts its traceback into it"
    return Cause(_FIRST, words, **speaker(job, log, rank, None), evidence=f"{text.name}:{line}", do=do)


def _shape(cause: Cause) -> str:
    return re.sub(r"\d+", "", cause.words)[:80]


def _store(known: Sequence[Cause]) -> list[Cause]:
    """Rank 0 serves the store, or the torchrun on its node: who lost it is not the cause."""
    lost = [cause for cause in known if _STORE.search(cause.words)]
    if not lost or 0 in {cause.rank for cause in lost}:
        return []
    words = f"{many(len(lost), 'rank')} lost the store that rank 0, or the torchrun on its node, serves: it ended first"
    return [Cause("store", words, rank=0, evidence=lost[0].evidence, do="the last lines of rank 0 and of its node")]


def _by_slurm(signature: str, unusual: Mapping[str, str]) -> Cause:
    """Return what only Slurm says. Of a lost node, its state names it."""
    known = SIGNATURES[signature]
    down = [name for name, words in unusual.items() if re.match(r"down|not_responding", words)]
    node = down[0] if signature == "slurm.node-failure" and len(down) == 1 else ""
    return Cause(signature, known.cause, node=node, evidence=_STATE, do=known.do)


def _causes(job: Job, text: Text, log: JobLog) -> list[Cause]:
    """In the order of the lines. `exit-code`: a task that only ended."""
    whole = [each for each in log.raised if each.is_ignored or not (each.is_bare and signs.match(each.words))]  # a sign
    own = {raised.line for raised in whole}
    numbered = [(raised.line, _raised(job, text, log, raised)) for raised in whole if not raised.is_victim]
    each = signs.in_lines(
        signs.numbered(text.text),
        text.name,
        lambda number, line: (number < log.outlived, speaker_of(line), xid.of_line(line)),
    )
    for sign in each:
        line = int(sign.evidence.rpartition(":")[2])
        if line not in own:
            numbered.append((line, _signed(job, text, log, sign, line)))
    for end in (*log.ended, *log.by_shell):
        by_slurm = 0 < log.closing < end.line and end.words.startswith(ENDED_BY_OTHERS)
        is_victim = end.words.startswith(ENDED_BY_OTHERS) or (log.waited and _SIGNAL.match(end.words))
        if not by_slurm and (not is_victim or end.words.startswith("Killed")):  # NCCL's threads end ranks that waited
            numbered.append((end.line, _ended(job, text, log, end)))
    spoke, causes = set[tuple[int | None, int | None]](), list[Cause]()
    for _, cause in sorted(numbered, key=lambda item: item[0]):
        who = cause.rank, cause.task
        if who in spoke and _SIGNAL.match(cause.words):  # it said why before it ended so
            cause = replace(cause, kind="exit-code")
        spoke |= {who} - {(None, None)}
        causes.append(cause)
    return causes


def _raised(job: Job, text: Text, log: JobLog, raised: Raised) -> Cause:
    signature = signs.match(raised.words)
    if signature and signature.frames and raised.called and not re.search(signature.frames, raised.called):
        signature = None
    kind, do = ("python", "") if signature is None else (signature.id, signature.do)
    if raised.is_victim and not (signature and signature.role == "consequence"):
        kind = "python"
    if _is_caught(job, log, raised):
        kind, do = _LEFT if raised.is_ignored or raised.line < log.outlived else "caught", ""
    words = raised.words if signature is None else f"{raised.words} ({signature.cause})"
    place = speaker(job, log, raised.rank, raised.task)
    return Cause(kind, words, **place, stack=raised.frame, evidence=f"{text.name}:{raised.line}", do=do)


def _is_caught(job: Job, log: JobLog, raised: Raised) -> bool:
    """Whether its program may have gone on behind it, because it caught it."""
    is_labelled = raised.rank is not None or raised.task is not None or job.tasks == 1  # else it is of any task
    if raised.is_fatal:
        return False
    if raised.is_ignored or (raised.raised_again and is_labelled):
        return True
    task = raised.task
    if task is None and raised.rank is not None:
        task = job.places(log).task_of(raised.rank)
    exited = [end.task for end in log.ended if re.match(r"Exited with exit code (?!143)", end.words)]
    if (exited and task is None) or task in exited or (log.exited and raised.rank is None) or raised.rank in log.exited:
        return False
    if raised.is_uncaught or raised.line < log.outlived:
        return raised.line < log.outlived
    is_loose = raised.is_bare and not is_labelled
    return is_loose or job.state in _GOES_ON or (raised.went_on and is_labelled)


def _signed(job: Job, text: Text, log: JobLog, sign: Sign, line: int) -> Cause:
    known = SIGNATURES[sign.signature]
    place = Place(node="", rank=None, task=None)
    if known.id in _OF_A_NODE:  # the kernel or Slurm ended it: srun says which task, or which node, it was
        ends = [end for end in log.ended if end.words in ("Out Of Memory", NODE_FAILURE)]
        place = speaker(job, log, None, ends[0].task, ends[0].node) if ends else place
        place["node"] = place["node"] or _named_in(job, sign.line)
    elif known.id not in (*_OF_THE_JOB, *_OF_NONE):
        task, rank = speaker_of(sign.line)
        place = speaker(job, log, rank, task)
        place["node"] = _named_in(job, sign.line) or place["node"]
    words, do = f"{sign.line} ({known.cause})", known.do + _hint(text.text, sign.line, line)
    event = xid.of_line(sign.line) if known.id == _XID else None
    if event is not None:
        of_none = "it asks for nothing" if event.warns else _OF_THE_PROGRAM
        words = f"{sign.line} ({event.what_and_action or of_none})"
        do = event.action or do
    if known.of == "corrected" or (event is not None and event.warns and event.action != xid.LOOK_IT_UP):
        return Cause(_HARMLESS, words, **place, evidence=sign.evidence)
    if signs.is_over(known.id, text.text):
        return Cause(_HARMLESS, f"{words}; a later line says that it is over", **place, evidence=sign.evidence)
    is_outlived = line < log.outlived or (_OF_A_SCRIPT.search(sign.line) and job.state in _GOES_ON)
    is_of_program = event is not None and not event.is_fault  # or no table knows it
    kind = "of-program" if is_of_program else _LEFT if is_outlived else known.id
    return Cause(kind, words, **place, evidence=sign.evidence, do=do)


def _hint(text: str, warning: str, line: int) -> str:
    """Return what NCCL itself says to try, where it does so behind its warning."""
    speaker = _OF_NCCL.search(warning)
    for behind in text.split("\n")[line : line + _BEHIND] if speaker else ():
        who, _, hint = behind.partition(" NCCL INFO HINT: To confirm, ")
        if hint and speaker and speaker[1] in who:
            return f"; NCCL's hint: {hint}"
    return ""


def _named_in(job: Job, line: str) -> str:
    named = _OF_NODE.search(line)
    node = next((word for word in named.groups() if word), "") if named and "CANCELLED AT" not in line else ""
    return node if node in job.nodes or not job.nodes else ""


def _ended(job: Job, text: Text, log: JobLog, end: Ended) -> Cause:
    crash = _SIGNAL.match(end.words)
    meaning = SIGNALS.get(crash[1] if crash else end.words)
    words = f"{end.words} ({meaning})" if meaning else end.words
    place = speaker(job, log, None, end.task, end.node)
    kind = "crash" if crash else "killed" if end.words.startswith("Killed") else "exit-code"
    return Cause(kind, words, **place, evidence=f"{text.name}:{end.line}")
