"""`bringup why`: the first cause of the end of any job, or what it does now, from what an ordinary user may read.

Slurm's word about the job and its nodes, the accounting, the job's own files. It changes nothing. With `on_nodes`, and
only then, it starts one small step on the job's nodes (infrastructure-validation/probes/job_processes.py).
Each thing that could not be seen is a line of its own: absence is never health.
"""

import errno
import os
import re
import stat
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from bringup.kernel.characters import many, without_colours
from bringup.kernel.errors import BringupError, SlurmError, UsageError
from bringup.kernel.facts import facts, hostlist
from bringup.kernel.facts.names import the_first
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Observation, files
from bringup.kernel.results import REPOSITORY
from bringup.readers import jobs as answers
from bringup.readers.known import signs, xid
from bringup.readers.node_states import Node
from bringup.run import slurm
from bringup.run.at_work import expected
from bringup.why.first_cause import STALL_S, UNEXPLAINED, judged
from bringup.why.places import Step
from bringup.why.records import Answer, Cause, Job, Text, in_short

MOST_BYTES = 32 * 2**20  # of a log: its end
PROBE = "infrastructure-validation/probes/job_processes.py"
STEP_S, ACCOUNTING_S = 90, 20
LABEL = 12  # letters before the words of a line on the screen
_AWAY = re.compile(r"DOWN|NOT_RESPONDING|POWER|FAIL|INVALID|UNKNOWN|FUTURE")  # takes no step of any job


def look(number: str, *, stall_s: float = STALL_S, on_nodes: bool = False) -> Answer:
    """Look at a job. Raises SlurmError where neither Slurm nor its accounting knows it, and UsageError where it has
    several parts."""
    not_seen: list[str] = []
    job = _job(number, not_seen)
    logs = list(dict.fromkeys(map(_moved, job.logs)))
    texts = [text for path in logs if (text := _read(path, not_seen)) is not None]
    if not job.logs:
        not_seen.append("its output: it has no file of its own (salloc, or srun on a terminal)")
    nodes = _nodes(job, not_seen)
    of_nodes = sum(node.gpus for node in nodes.values()) if len(nodes) == len(job.nodes) else 0
    job = replace(job, is_alone=job.is_alone or 0 < of_nodes <= job.gpus)
    quiet_s = min((time.time() - text.written for text in texts), default=0.0)
    answer = judged(job, texts, nodes, quiet_s=quiet_s, stall_s=stall_s)
    answer.not_seen[:0] = not_seen
    if answer.cause.kind == "exit-code" and (closed := _closed(logs)):
        words = f"{answer.cause.words}; {closed}: what the job said last may be lost"
        answer.cause = replace(answer.cause, words=words, do=known.do if (known := signs.match(closed)) else "")
    if (late := _late(job, logs)) and answer.cause.kind == "none":
        answer.cause = Cause("late", late, do=f"bringup why {number} --on-nodes shows what its processes wait for")
    if on_nodes and job.nodes:
        _ask_nodes(answer, nodes)
    elif job.nodes:
        where = f"kernel logs and processes of {hostlist.shortened(job.nodes)}"
        answer.not_seen.append(f"{where}: a step there can read them (--on-nodes)")
    return answer


def look_at_log(path: str, state: str, nodes: str, tasks: int) -> Answer:
    """Look at a log alone (`-`: standard input), without Slurm. Raises UsageError where it cannot be read."""
    unread: list[str] = []
    text = _standard_input(unread) if path == "-" else _read(path, unread)
    if text is None:
        raise UsageError(unread[0])
    job = Job(text.name, "", state or "UNKNOWN", nodes=hostlist.expand(nodes) if nodes else [], tasks=tasks)
    answer = judged(job, [text], {})
    unknown = [f"--{name}" for name, value in (("state", state), ("nodes", nodes), ("tasks", tasks)) if not value]
    asked = f"; not known: {', '.join(unknown)} (as scontrol show job says them)" if unknown else ""
    answer.not_seen[:0] = [*unread, f"Slurm was not asked about this log{asked}"]
    return answer


def _standard_input(unread: list[str]) -> Text:
    content = sys.stdin.buffer.read(MOST_BYTES + 1)
    if len(content) > MOST_BYTES:
        unread.append(f"standard input behind its first {MOST_BYTES // 2**20} MiB: give the log as a file")
    return _text("standard input", content[:MOST_BYTES], time.time())


def _moved(log: str) -> str:
    """Where the phase scripts of bringup keep their log from their first line on (scripts/job.sh): the newest one."""
    path = Path(log)
    names = [f"{folder}{path.stem}{attempt}.out" for folder in ("", "slurm-logs/") for attempt in ("", "-r*")]
    kept = sorted((each for name in names for each in path.parent.glob(name)), key=lambda each: each.stat().st_mtime)
    return log if path.exists() or not kept else str(kept[-1])


def _closed(logs: list[str]) -> str:
    """Say why a log takes no more lines now. It writes none, and asks only of what its owner may write by its mode."""
    for log in logs:
        try:
            status = os.lstat(log)
            if stat.S_ISREG(status.st_mode) and status.st_mode & stat.S_IWUSR and status.st_uid == os.geteuid():
                os.close(os.open(log, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK))
                if (space := os.statvfs(log)).f_blocks and not space.f_bavail:
                    return f"{log} cannot be written here now: {os.strerror(errno.ENOSPC)}"
        except FileNotFoundError:  # not_seen has it
            continue
        except OSError as error:
            return f"{log} cannot be written here now: {error.strerror}"
    return ""


def _late(job: Job, logs: list[str]) -> str:
    """Say that a step of bringup takes longer than it should; empty: it does not, or is no such step."""
    stem = next((stem for log in logs if (stem := Path(log).stem.partition(f"-{job.number}")[0]) in PHASES), None)
    begun = _seconds(job.started)
    if stem is None or begun is None or job.state != "RUNNING":
        return ""
    taken = expected(PHASES[stem], job.nodes, "--model is-not-known").after(time.time() - float(begun))
    return f"it takes longer than this step should: {taken}" if "overdue" in taken else ""


def _job(number: str, not_seen: list[str]) -> Job:
    fields, accounted = {}, {}
    try:
        records = answers.job_records(slurm.show_job(number))
        fields = _only(number, records, [answers.job_name(record) for record in records])
    except SlurmError as error:
        not_seen.append(f"scontrol show job: {error}")
    try:
        rows = answers.accounted(_accounting(number))
        accounted = _only(answers.job_name(fields) or number, rows, [row["JobID"] for row in rows])
        if not accounted:
            not_seen.append("sacct: the accounting does not know it")
    except SlurmError as error:
        not_seen.append(f"{error}: who cancelled it, and jobs that slurmctld forgot, are not known")
    if not fields and not accounted:
        raise SlurmError(
            f"job {number} is not known: slurmctld forgets a job some minutes after its end, and the accounting has no "
            f"record of it; squeue --me lists yours ({'; '.join(not_seen)})"
        )

    def of(field: str, column: str) -> str:
        return fields.get(field) or accounted.get(column, "")

    name = answers.job_name(fields) if fields else accounted.get("JobID", number)
    raw = of("JobId", "JobIDRaw") or number
    state, _, by = accounted.get("State", "").partition(" by ")
    nodes, user = _named(of("NodeList", "NodeList")), fields.get("UserId", "").partition("(")[0]
    logs = [of("StdErr", "StdErr"), of("StdOut", "StdOut")]
    if not fields and not any(logs):  # as sbatch names it
        logs = [f"{accounted.get('WorkDir', '')}/slurm-{name if '_' in name else raw}.out"]
    array, _, task = name.partition("_")
    of_a_path = (raw, array if task else raw, task, fields.get("JobName", ""), next(iter(nodes), ""), user)
    names = dict(zip("jAaxNu", of_a_path, strict=True))
    paths = [re.sub(r"%([jAxNau])", lambda part: names[part[1]], path) for path in logs if path]
    # as the job requested it (`--ntasks-per-node`)
    of_a_node = fields.get("NtasksPerN:B:S:C", "").partition(":")[0]
    return Job(
        name,
        user or accounted.get("User", ""),
        fields.get("JobState") or state,
        of("ExitCode", "ExitCode"),
        nodes,
        _count(fields.get("NumTasks", "")),
        of("StartTime", "Start"),
        of("EndTime", "End"),
        list(dict.fromkeys(path for path in paths if path != "/dev/null")),
        f"user {by}" if by else "",
        raw,
        of("Partition", "Partition"),
        _is_exclusive(fields),
        answers.gpus_of_job(fields.get("AllocTRES") or of("TRES", "AllocTRES")),
        _steps(name, _count(of_a_node)) if accounted else [],
        len(nodes) < 2 or _is_in_order(),
    )


def _accounting(number: str) -> str:
    """Ask for its row, with the paths of its logs where the accounting keeps them. Raises SlurmError."""
    columns = [*answers.OF_A_JOB[:-1], *answers.OF_LOGS, answers.OF_A_JOB[-1]]
    try:
        return slurm.accounted(number, columns, "--allocations", "--expand-patterns", timeout_s=ACCOUNTING_S)
    except SlurmError as error:
        if not re.search("[Ii]nvalid field|[Uu]nrecognized option", str(error)):
            raise
    return slurm.accounted(number, answers.OF_A_JOB, "--allocations", timeout_s=ACCOUNTING_S)


def _count(text: str) -> int:
    """Read a number of Slurm; 0: it says none, or forgot the job's record."""
    return int(text) if text.isdecimal() else 0


def _is_exclusive(fields: Mapping[str, str]) -> bool:
    """From Slurm 26.05 on every job has OverSubscribe=NO, and another field says it."""
    return fields["Exclusive"] == "NODE" if "Exclusive" in fields else fields.get("OverSubscribe") == "NO"


def _is_in_order() -> bool:
    """Say whether tasks are numbered along the node list; without an answer their places come from the logs alone."""
    try:
        return not slurm.tasks_follow_topology()
    except SlurmError:
        return False


def _steps(job: str, of_a_node: int) -> list[Step]:
    """Without an answer the places of ranks come from the logs alone, which say so."""
    try:
        table = slurm.accounted(job, answers.OF_A_STEP, timeout_s=ACCOUNTING_S)
    except SlurmError:
        return []
    rows = [row for row in answers.accounted(table) if row["JobID"].startswith(f"{job}.")]
    return [
        Step(_named(row["NodeList"]), _count(row["NTasks"]), row["Layout"], of_a_node, row["State"])
        for row in rows
        if row["JobID"].rpartition(".")[2].isdecimal()  # not the batch script, nor what Slurm itself starts
    ]


def _only(number: str, records: list[dict[str, str]], names: list[str]) -> dict[str, str]:
    """Find the record of this job. Raises UsageError where it has several: the causes of tasks are their own."""
    if len(records) > 1 and number not in names:
        raise UsageError(f"job {number} has {len(names)} parts, ask for one of them: {the_first(names, 20)}")
    return records[names.index(number) if number in names else 0] if records else {}


def _named(nodelist: str) -> list[str]:
    try:
        return [] if nodelist in ("", "(null)", "None assigned") else hostlist.expand(nodelist)
    except BringupError:
        return []


def _read(path: str, not_seen: list[str]) -> Text | None:
    try:
        with files.opened(Path(path)) as fd:
            status = os.fstat(fd)
            skipped = max(0, status.st_size - MOST_BYTES)
            content = os.pread(fd, MOST_BYTES, skipped)
    except OSError as error:
        not_seen.append(f"{path}: {error.strerror or error}")
        return None
    if skipped:
        not_seen.append(f"the first {skipped / 2**20:.0f} MiB of {path}: lines are counted behind them")
    return _text(path, content, status.st_mtime)


def _text(name: str, content: bytes, written: float) -> Text:
    return Text(name, without_colours(content.decode(errors="replace")), written)


def _nodes(job: Job, not_seen: list[str]) -> dict[str, Node]:
    try:
        known = slurm.nodes(job.nodes) if job.nodes else {}
    except SlurmError as error:
        not_seen.append(f"the states of its nodes: {error}")
        return {}
    return {name: node for name, node in known.items() if name in job.nodes}


def _ask_nodes(answer: Answer, nodes: dict[str, Node]) -> None:
    """Ask each node by a step of one task: in the job, where it is the user's and runs; else in a job of its own."""
    job = answer.job
    runs = job.state == "RUNNING"
    # a node that is drained still takes steps of the jobs that run there
    away = [n for n, node in nodes.items() if _AWAY.search(node.state) or not (runs or node.is_usable)]
    asked = [name for name in job.nodes if name not in away]
    if away:
        answer.not_seen.append(f"kernel logs and processes of {hostlist.shortened(away)}: not usable now")
    if not asked:
        return
    own = [f"--jobid={job.number}", "--overlap"] if runs else ["--immediate=20"]
    own += [f"--partition={job.partition}"] if job.partition and not runs else []
    command = ("python3", str(REPOSITORY / PROBE), job.number)
    since, until = _seconds(job.started), None if runs or job.state == "SUSPENDED" else _seconds(job.ended)
    is_timed = since is not None and (until is not None or runs or job.state == "SUSPENDED")
    times = [since or "0", *([until] if until else [])]
    try:
        output = slurm.on_nodes(asked, own, *command, *times, timeout_s=STEP_S)
    except SlurmError as error:
        answer.not_seen.append(f"kernel logs and processes: {error}")
        output = error.printed
    seen = facts.parse(output, "the step on its nodes") if output else Parsed()
    ends = f"probe.{Path(PROBE).stem}.finished"
    finished = {each.subject for each in seen.observations if each.quantity == ends and each.value}
    if silent := [name for name in asked if name not in finished]:
        answer.not_seen.append(f"kernel logs and processes of {hostlist.shortened(silent)}: no whole answer")
    answer.not_seen += seen.problems
    for each in seen.observations:
        if each.value is None:
            answer.not_seen.append(f"{each.subject}: {each.quantity.partition('.')[2]}: {each.why}")
        event = xid.event(each.quantity.removeprefix("job.kernel."))
        if event is not None and event.is_fault and each.value:
            _judge(answer, each, event, is_timed=is_timed)
        elif each.quantity == "job.kernel" and (known := signs.match(str(each.value))) and known.of is not None:
            words = f"the kernel log of {each.subject}: {each.value} ({known.cause})"
            sign = Cause(known.id, words, node=each.subject, do=known.do)
            says_why = known.role == "root" and is_timed and job.is_alone and job.state != "COMPLETED"
            if says_why and answer.cause.kind in UNEXPLAINED:
                answer.cause, sign = sign, answer.cause
            answer.then += [sign.words]
        elif each.quantity in ("job.process", "job.stack", "job.kernel") and each.value:
            answer.then.append(f"{each.subject}: {each.value}")
    if answer.cause.kind == "stalled":
        stacks = {each.subject: str(each.value) for each in seen.observations if each.quantity == "job.stack"}
        answer.cause = elsewhere(answer.cause, stacks)


def _judge(answer: Answer, seen: Observation, event: xid.Event, *, is_timed: bool) -> None:
    """Take a message about a GPU for the cause if its time and GPU are the job's, and the job did not end well."""
    job, before = answer.job, answer.cause
    node, _, device = seen.subject.partition("/")
    words = f"the kernel log of {node}: {event.words} on {device or 'a GPU'}"
    words += " in the time of the job" if is_timed else "; whether in the time of the job is not known"
    words += "" if job.is_alone else "; whether the GPU was the job's is not known"
    if not (is_timed and job.is_alone) or job.state == "COMPLETED" or before.kind == "gpu.xid":
        answer.then.append(words)
        return
    answer.then[:0] = [in_short(before)] if before.kind != "none" else []
    of_it = before if before.node == node else Cause("", "")  # the rank on that node
    answer.cause = replace(of_it, kind="gpu.xid", words=words, node=node, do=event.action or "")


def elsewhere(cause: Cause, stacks: Mapping[str, str]) -> Cause:
    """Find the rank that stands elsewhere than most others: they wait for it. Without a majority, none is named."""
    frames = {place: stack.partition(", called by ")[0] for place, stack in stacks.items() if stack}
    usual, count = next(iter(Counter(frames.values()).most_common(1)), ("", 0))
    others = [place for place, frame in frames.items() if frame != usual]
    if len(others) != 1 or count < 2:
        return cause
    node, _, process = others[0].partition("/")
    number = {process[:4]: int(process[4:])} if process[4:].isdecimal() else {}
    rank, task = number.get("rank"), number.get("task")
    words = f"{cause.words}; {count} processes stand in {usual}, and this one elsewhere"
    return replace(cause, words=words, node=node, rank=rank, task=task, stack=stacks[others[0]])


def _seconds(moment: str) -> str | None:
    """Since 1970, of a time that Slurm prints: local, and without a zone. None: it is none."""
    try:
        return str(int(datetime.fromisoformat(moment).timestamp()))
    except ValueError:
        return None


def screen(answer: Answer) -> str:
    """Write a line for each part of the answer."""
    job, cause = answer.job, answer.cause
    none = "no node" if job.user else "on nodes that are not known"
    nodes = f"{many(len(job.nodes), 'node')} {hostlist.shortened(job.nodes)}" if job.nodes else none
    code = f" with {job.exit_code}" if job.exit_code not in ("", "0:0") else ""
    head = f"{job.id}{f' of {job.user}' if job.user else ''}: {job.state.lower()}{code}, {nodes}"
    head += f", {job.started} to {job.ended}" if job.user else ""
    place = " on ".join(part for part in (cause.who, cause.node) if part)
    rows = [
        ("job", head),
        ("first cause", f"{place}{': ' if place else ''}{cause.words}"),
        *(("stack", cause.stack), ("collective", cause.collective), ("seen in", cause.evidence), ("next", cause.do)),
        *(("also", line) for line in answer.then),
        *(("node", f"{name}: {words}") for name, words in answer.nodes.items()),
        *(("not seen", line) for line in answer.not_seen),
    ]
    return "\n".join(f"{name:<{LABEL}}{' '.join(words.split())}" for name, words in rows if words)
