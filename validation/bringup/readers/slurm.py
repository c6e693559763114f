"""Answers of Slurm's own commands. Output of 22.05 and later; no --json, which changes with every release."""

import re
from collections import Counter
from collections.abc import Container, Sequence
from dataclasses import dataclass
from datetime import datetime

from bringup.kernel.errors import UsageError
from bringup.kernel.facts.hostlist import expand
from bringup.kernel.facts.parser_result import Parsed, cut, lines
from bringup.readers import node_states
from bringup.readers.node_states import Node

_NODE = re.compile(r"^NodeName=(\S+) ")


def _field(line: str, name: str) -> str | None:
    """`Name=value` of one `scontrol -o` line; only for values without blanks."""
    match = re.search(rf"(?:^| ){re.escape(name)}=(\S*)", line)
    return match[1] if match else None


def gpus_of(gres: str | None) -> int:
    """Count GPUs in a Gres string: `gpu:h100:8(S:0-1),shard:16` -> 8. None and (null) are 0."""
    if not gres or gres == "(null)":
        return 0
    counts = (re.fullmatch(r"gpu(?::[^:()]+)*?:(\d{1,9})(?:\(.*\))?", item) for item in _items(gres))
    return sum(int(match[1]) for match in counts if match)


def _items(gres: str) -> list[str]:
    """Split at commas outside parentheses."""
    return re.split(r",(?![^(]*\))", cut(gres))


def node_in(line: str, own: Container[str]) -> tuple[str, Node] | None:
    """Read a name and its node from a line of `scontrol --oneliner show node`. None: it is none, or is cut off behind
    the state, where IDLE may have been IDLE+DRAIN. own: nodes that the run has, or gets, through a reservation."""
    fields, _, tail = line.partition(" Reason=")  # free text, which may look like more fields
    reason = re.match(r"(.*?)(?: \[\S+@[^\]]+\])?(?: Comment=.*)?\s*$", cut(tail))
    match, state = _NODE.match(fields), _field(fields, "State")
    if match is None or not state or line.endswith(f" State={state}"):
        return None
    gpus = (re.sub(r"\(.*\)", "", item) for item in _items(_field(fields, "Gres") or "") if item.startswith("gpu"))
    gres = ",".join(gpus)
    others = {"arch": "Arch", "version": "Version", "booted": "BootTime"}
    return match[1], Node(
        state=node_states.harmful(state, has_reservation=match[1] in own),
        reason=(reason[1].strip() or None) if reason else None,
        gpus=gpus_of(gres),
        gres=gres,
        features=tuple(cut(_field(fields, "ActiveFeatures") or "").split(",")),
        **{name: _field(fields, field) or "" for name, field in others.items()},
    )


def nodes(text: str, where: str, own: Container[str] = ()) -> Parsed:
    """Read `scontrol --oneliner show node`: state with its harmful flags and the reason, GPUs configured."""
    parsed = Parsed()
    for number, line in enumerate(lines(text), start=1):
        if not line.strip():
            continue
        if (known := node_in(line, own)) is None:
            parsed.note(f"{where}:{number}: not a line of `scontrol -o show node`: {line[:60]!r}")
            continue
        name, node = known
        parsed.saw("slurm.node.state", name, node.state, "text", f"{where}:{number}", node.reason)
        if node.version:  # a node that never registered has none
            parsed.saw("slurm.node.version", name, node.version, "text", f"{where}:{number}")
        parsed.saw("slurm.node.gpus", name, node.gpus, "count", f"{where}:{number}")
    return parsed if parsed.observations or parsed.problems else parsed.note(f"{where}: names no node")


def config(text: str, where: str) -> Parsed:
    """Read `scontrol show config`, with its cgroup section: Key = value."""
    parsed = Parsed()
    return parsed.add(cgroup_conf("\n".join(parsed.whole_lines(text, where)), where))


def cgroup_conf(text: str, where: str) -> Parsed:
    """Parse cgroup.conf. An administrator writes it, so its last line may have no line feed."""
    parsed = Parsed()
    for number, line in enumerate(lines(text), start=1):
        # newer versions number keys that may be set several times: Prolog[0]
        match = re.match(r"^\s*([A-Za-z][A-Za-z0-9_]*)(?:\[0\])?\s*=\s*(.*?)\s*$", line)
        if match and match[2]:
            value = match[2].lower() if match[1].startswith("Constrain") else match[2]
            parsed.saw(f"slurm.config.{match[1]}", "job", value, "text", f"{where}:{number}")
    return parsed if parsed.observations else parsed.note(f"{where}: holds no configuration")


def partitions(text: str, where: str) -> Parsed:
    """Read `scontrol --oneliner show partition`: what a job meets there, in one line for each."""
    parsed = Parsed()
    for number, line in enumerate(parsed.whole_lines(text, where), start=1):
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if name := fields.get("PartitionName"):
            default = " (default)" if fields.get("Default") == "YES" else ""
            keys = ("State", "TotalNodes", "MaxTime", "MaxNodes", "OverSubscribe", "AllowAccounts", "AllowQos")
            answers = [f"{key} {fields[key]}" for key in keys if fields.get(key) not in (None, "ALL", "UNLIMITED")]
            parsed.saw("slurm.partitions", "job", f"{name}{default}: {', '.join(answers)}", "text", f"{where}:{number}")
    return parsed


def ping(text: str, where: str) -> Parsed:
    """Read `scontrol ping`: is the primary controller up?"""
    parsed = Parsed()
    text = "\n".join(parsed.whole_lines(text, where))
    match = re.search(r"^Slurmctld\(primary\) at \S+ is (\w+)$", text, re.MULTILINE)
    if match is None:
        return parsed.note(f"{where}: not an answer of `scontrol ping`: {text[:60]!r}")
    line = text.count("\n", 0, match.start()) + 1
    return parsed.saw("smoke.controller", "job", match[1], "text", f"{where}:{line}")


_FIELDS = ("JobState", "ExitCode", "SubmitTime", "StartTime", "EndTime")
# field of `scontrol show job` -> column of `sacct`
ACCOUNTED = {field: field.removeprefix("Job").removesuffix("Time") for field in _FIELDS}
_OF_SLURM = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE")  # ends that say nothing about what the job was for


def ended_job(text: str, where: str, *, name: str) -> Parsed:
    """Read an ended job: a line of `scontrol -o show job`, or the table with a header that `sacct -X -P` prints. Times
    are Slurm's, to the second."""
    parsed, known, line = Parsed(), dict[str, str | None](), 1
    rows = parsed.whole_lines(text, where)
    if rows and rows[0].startswith("JobId="):
        known = {field: _field(rows[0], field) for field in ACCOUNTED}
    elif len(rows) == 2 and rows[0].startswith("JobID|"):
        line, cells = 2, dict(zip(rows[0].split("|"), rows[1].split("|"), strict=False))
        # CANCELLED by 1000
        known = {field: cells.get(column, "").partition(" ")[0] or None for field, column in ACCOUNTED.items()}
    if (state := known.get("JobState")) is None:
        return parsed.note(f"{where}: not a job of `scontrol -o show job` or `sacct -X -P`: {text[:60]!r}")
    why = f"Slurm ended the job: {state}" if state in _OF_SLURM else None
    for field, value in known.items():
        if value is not None:
            quantity = f"smoke.{name}.{'state' if field == 'JobState' else field}"
            parsed.saw(quantity, "job", None if why else value, "text", f"{where}:{line}", why)
    return parsed


OF_A_JOB = (
    *("JobID", "JobIDRaw", "User", "Partition", "State", "ExitCode", "NodeList", "Start", "End", "AllocTRES"),
    "WorkDir",
)
"""Columns of `sacct --parsable2`; free text comes last."""
OF_A_STEP = ("JobID", "NTasks", "Layout", "NodeList")
_WHOLE_LINE = re.compile(r"\s*(StdErr|StdOut|WorkDir|Command|Comment|AdminComment|SystemComment)=(.*)")


def job_fields(text: str) -> dict[str, str]:
    """Read one record of `scontrol show job`, in several lines: field -> value. What a user writes into a name or
    comment of the job changes no other field: the first value of a field counts, and of the last lines the last one."""
    fields: dict[str, str] = {}
    for line in map(cut, lines(text.strip().partition("\n\n")[0])):
        if match := _WHOLE_LINE.fullmatch(line):
            fields[match[1]] = match[2].strip()
            continue
        head, name, rest = line.partition("JobName=")
        for part in head.split():
            key, _, value = part.partition("=")
            fields.setdefault(key, value)
        if name:
            fields.setdefault("JobName", rest.strip())
    return fields


def job_records(text: str) -> list[dict[str, str]]:
    """Read `scontrol show job`: a record, or several: of tasks of an array, of parts of a heterogeneous job."""
    return [job_fields(part) for part in re.split(r"\n\n+", text.strip()) if part.startswith("JobId=")]


def job_name(fields: dict[str, str]) -> str:
    """Name a job as Slurm does: 7, 7_3 of an array, 7+1 of a heterogeneous job."""
    if "ArrayTaskId" in fields:
        task = fields["ArrayTaskId"]
        return f"{fields.get('ArrayJobId', '')}_{task if task.isdecimal() else f'[{task}]'}"
    if "HetJobOffset" in fields:
        return f"{fields.get('HetJobId', '')}+{fields['HetJobOffset']}"
    return fields.get("JobId", "")


def gpus_of_job(tres: str) -> int:
    """Count GPUs in `cpu=4,node=2,gres/gpu=16`."""
    match = re.search(r"(?:^|,)gres/gpu=(\d{1,9})", cut(tres))
    return int(match[1]) if match else 0


def accounted(text: str) -> list[dict[str, str]]:
    """Read `sacct --parsable2` with a header: a row per job or step. The last column may hold the delimiter."""
    header, *rows = [line for line in lines(text) if line.strip()] or [""]
    names = header.split("|")
    split = (row.split("|", len(names) - 1) for row in rows)
    return [dict(zip(names, cells, strict=True)) for cells in split if len(cells) == len(names)]


OF_ENDED_JOBS = ("JobID", "User", "State", "NodeList", "Start", "End", "JobName")
_NO_TIME = {"Unknown", "None", ""}  # it runs, or never began


@dataclass(frozen=True)
class AccountedJob:
    user: str
    name: str
    state: str  # COMPLETED, FAILED, CANCELLED, ...
    nodes: tuple[str, ...]
    start: datetime
    end: datetime


def ended_jobs(text: str) -> tuple[list[AccountedJob], int]:
    """Return the jobs of `sacct --parsable2` with these columns that ran on nodes and ended; their steps are left out.
    And how many rows could not be read. Raises UsageError where the table is another one."""
    rows = accounted(text)
    unread = len([line for line in lines(text) if line.strip()]) - 1 - len(rows)
    if lines(text)[0].split("|") != list(OF_ENDED_JOBS):
        raise UsageError(f"not a table of sacct --parsable2 --format={','.join(OF_ENDED_JOBS)}: {text[:60]!r}")
    jobs = []
    for row in rows:
        if "." in row["JobID"] or {row["Start"], row["End"]} & _NO_TIME or row["NodeList"] in ("", "None assigned"):
            continue
        try:
            start, end = datetime.fromisoformat(row["Start"]), datetime.fromisoformat(row["End"])
            nodes = tuple(expand(row["NodeList"]))
        except (ValueError, UsageError):
            unread += 1
            continue
        jobs.append(AccountedJob(row["User"], row["JobName"], row["State"].partition(" ")[0], nodes, start, end))
    return jobs, unread


LEAVES, LEAF, SWITCHES = "slurm.leaves", "slurm.leaf", "slurm.switches"
# topology/tree; topology/block without AggregatedBlock
_SWITCH = re.compile(
    r"(?:SwitchName=(?P<switch>\S+) Level=(?P<level>\d+)|BlockName=(?P<block>\S+)) .*?\bNodes=(?P<nodes>\S+)"
)


def topology(text: str, where: str, nodes: Sequence[str]) -> Parsed:
    """Read `scontrol show topology`: the leaf switch or block of these nodes, and all switches above them, the lowest
    first. Empty where Slurm knows none."""
    parsed, leaves = Parsed(), 0
    above: dict[str, list[tuple[int, str]]] = {}
    for number, line in enumerate(parsed.whole_lines(text, where), start=1):
        if (match := _SWITCH.match(line)) is None:
            continue
        level, name = int(match["level"] or 0), match["switch"] or match["block"]
        leaves += level == 0
        try:
            under = set(expand(match["nodes"])).intersection(nodes)
        except UsageError as error:
            parsed.note(f"{where}:{number}: {error}")
            continue
        for node in sorted(under):
            above.setdefault(node, []).append((level, name))
            if level == 0:
                parsed.saw(LEAF, node, name, "text", f"{where}:{number}")
    for node, switches in sorted(above.items()):
        parsed.saw(SWITCHES, node, [name for _, name in sorted(switches)], "text", f"{where}:1")
    return parsed.saw(LEAVES, "job", leaves, "count", f"{where}:1")


_PMIX_VERSIONS = re.compile(r"specific pmix plugin versions available: (\S+)")


def mpi_list(text: str, where: str) -> Parsed:
    """Read `srun --mpi=list`: a headline, a plugin per line, versions of pmix; some versions print `srun:` first."""
    parsed = Parsed()
    answers = [line.removeprefix("srun:").strip() for line in parsed.whole_lines(text, where)]
    plugins = [line for line in answers if re.fullmatch(r"[a-z][a-z0-9_]*", line)]
    for line in answers:
        if match := _PMIX_VERSIONS.match(line):
            plugins += [version for version in match[1].split(",") if version]
    if plugins and any("MPI" in line for line in answers):
        return parsed.saw("slurm.mpi.plugins", "job", plugins, "text", f"{where}:1")
    return parsed.note(f"{where}: not an answer of `srun --mpi=list`: {text[:60]!r}")


def bad_exit(text: str, where: str) -> Parsed:
    """Read `n0 began`, and `n0 survived` of a task that outlived the failed one. Each node must begin two tasks."""
    parsed = Parsed()
    tasks = Counter(re.findall(r"^(?: *\d+: )?(\S+) (began|survived)$", text, re.MULTILINE))
    if not tasks:
        parsed.note(f"{where}: no task began")
    for node in sorted({node for node, _ in tasks}):
        began, survived = tasks[node, "began"], tasks[node, "survived"]
        why = f"{began} of 2 tasks began" if began < 2 else None
        parsed.saw("smoke.bad_exit", node, None if why else survived, "count", where, why)
    return parsed


def node_of(line: str) -> str | None:
    """Return the node that a task in a line names."""
    match = re.fullmatch(r"(\S+) (?:began|survived)", line)
    return match[1] if match else None


def requeue(text: str, where: str) -> Parsed:
    """Read `n0 restarts 0` from the first attempt, `n1 restarts 1` from the next one."""
    counts = [int(count) for count in re.findall(r"^\S+ restarts (\d{1,9})$", text, re.MULTILINE)]
    if counts:
        return Parsed().saw("smoke.requeue", "job", max(counts), "count", where)
    return Parsed().note(f"{where}: no attempt began")
