"""What Slurm answered about the jobs of smoke, and what they printed."""

import re
from collections import Counter
from collections.abc import Sequence

from bringup.kernel.facts.hostlist import expand
from bringup.kernel.facts.parser_result import Parsed
from bringup.readers.slurm import ACCOUNTED, field_of


def ping(text: str, where: str) -> Parsed:
    """Read `scontrol ping`: is the primary controller up?"""
    parsed = Parsed()
    text = "\n".join(parsed.whole_lines(text, where))
    match = re.search(r"^Slurmctld\(primary\) at \S+ is (\w+)$", text, re.MULTILINE)
    if match is None:
        return parsed.note(f"{where}: not an answer of `scontrol ping`: {text[:60]!r}")
    line = text.count("\n", 0, match.start()) + 1
    return parsed.saw("smoke.controller", "job", match[1], "text", f"{where}:{line}")


_OF_SLURM = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL", "DEADLINE")  # ends that say nothing about what the job was for


def ended_job(text: str, where: str, *, name: str) -> Parsed:
    """Read an ended job: a line of `scontrol -o show job`, or the table with a header that `sacct -X -P` prints. Times
    are Slurm's, to the second."""
    parsed, known, line = Parsed(), dict[str, str | None](), 1
    rows = parsed.whole_lines(text, where)
    if rows and rows[0].startswith("JobId="):
        known = {field: field_of(rows[0], field) for field in ACCOUNTED}
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


_BLOCK = re.compile(r"BlockName=(\S+) .*?\bNodes=(\S+)")
_WOULD_GET = re.compile(r"sbatch: Job \d+ to start at .* on nodes (\S+) in partition .*")


def segment(text: str, where: str, nodes: Sequence[str]) -> Parsed:
    """Read blocks of `scontrol show topology`, and behind them what `sbatch --test-only --nodes=2 --segment=2` says."""
    parsed, blocks, value = Parsed(), dict[str, str](), None
    *known, answer = ["", *parsed.whole_lines(text, where)]
    for block in filter(None, map(_BLOCK.match, known)):
        blocks |= dict.fromkeys(expand(block[2]), block[1])
    if max(Counter(filter(None, map(blocks.get, nodes))).values(), default=0) < 2:
        value, answer = "no such blocks", "Slurm has no block with two of these nodes"
    elif (match := _WOULD_GET.match(answer)) is not None:
        value = "in one block" if len({*map(blocks.get, expand(match[1]))}) == 1 else "in several blocks"
    elif answer.endswith("Requested node configuration is not available"):
        value = "refused"  # every other refusal is about the request: an account, a limit, an option that is too new
    return parsed.saw("smoke.jobs.segment", "job", value, "text", where, answer)


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
