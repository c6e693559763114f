"""Answers of Slurm's own commands. Output of 22.05 and later; no --json, which changes with every release."""

import re
from collections.abc import Container, Sequence

from bringup.kernel.errors import UsageError
from bringup.kernel.facts.hostlist import expand
from bringup.kernel.facts.parser_result import Parsed, cut, lines
from bringup.readers import node_states
from bringup.readers.node_states import Node

_FIELDS = ("JobState", "ExitCode", "SubmitTime", "StartTime", "EndTime")
# field of `scontrol show job` -> column of `sacct`
ACCOUNTED = {field: field.removeprefix("Job").removesuffix("Time") for field in _FIELDS}
PROMISED = "slurm.node.promised."
_NODE = re.compile(r"^NodeName=(\S+) ")


def field_of(line: str, name: str) -> str | None:
    """Return the value of `Name=value` in a line of `scontrol -o`; only of values without blanks."""
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
    match, state = _NODE.match(fields), field_of(fields, "State")
    if match is None or not state or line.endswith(f" State={state}"):
        return None
    gpus = (re.sub(r"\(.*\)", "", item) for item in _items(field_of(fields, "Gres") or "") if item.startswith("gpu"))
    gres = ",".join(gpus)
    others = {"arch": "Arch", "version": "Version", "booted": "BootTime"}
    return match[1], Node(
        state=node_states.harmful(state, has_reservation=match[1] in own),
        reason=(reason[1].strip() or None) if reason else None,
        gpus=gpus_of(gres),
        gres=gres,
        features=tuple(cut(field_of(fields, "ActiveFeatures") or "").split(",")),
        **{name: field_of(fields, field) or "" for name, field in others.items()},
    )


def nodes(text: str, where: str, own: Container[str] = ()) -> Parsed:
    """Read `scontrol --oneliner show node`: state with its harmful flags and the reason, GPUs, CPUs, MiB configured."""
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
        for field in ("CPUTot", "RealMemory"):
            if (promised := field_of(line, field) or "").isdecimal():
                parsed.saw(f"{PROMISED}{field}", name, int(promised[:18]), "count", f"{where}:{number}")
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
