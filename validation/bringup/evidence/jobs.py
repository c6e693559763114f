"""Results of the smoke phase's jobs: `scontrol show job` after their end, and the output of their tasks."""

from __future__ import annotations

import re

from bringup.evidence import slurm
from bringup.evidence.parsed import Parsed


def ended_job(text: str, where: str, *, name: str) -> Parsed:
    """Facts from `scontrol show job` of an ended job; times are Slurm's, to the second."""
    parsed = slurm.job(text, where, quantity=f"smoke.{name}.state", field="JobState")
    for field in ("ExitCode", "SubmitTime", "StartTime", "EndTime"):
        if parsed.observations:
            parsed.observations += slurm.job(text, where, quantity=f"smoke.{name}.{field}", field=field).observations
    return parsed


def bad_exit(text: str, where: str) -> Parsed:
    """`n0 began`, and `n0 survived` from a task that outlived the failed task. Each node must have begun two tasks."""
    parsed = Parsed()
    lines_of_tasks = re.findall(r"^(?: *\d+: )?(\S+) (began|survived)$", text, re.MULTILINE)
    if not lines_of_tasks:
        parsed.problems.append(f"{where}: no task began")
    for node in sorted({node for node, _ in lines_of_tasks}):
        began, survived = lines_of_tasks.count((node, "began")), lines_of_tasks.count((node, "survived"))
        if began < 2:
            parsed.saw("smoke.bad_exit", node, None, "count", where, f"{began} of 2 tasks began")
        else:
            parsed.saw("smoke.bad_exit", node, survived, "count", where)
    return parsed


def node_of(line: str) -> str | None:
    """The node that a task of it names."""
    match = re.fullmatch(r"(\S+) (?:began|survived)", line)
    return match[1] if match else None


def requeue(text: str, where: str) -> Parsed:
    """`n0 restarts 0` from the first attempt, `n1 restarts 1` from the next one."""
    parsed = Parsed()
    counts = [int(count) for count in re.findall(r"^\S+ restarts (\d{1,9})$", text, re.MULTILINE)]
    if counts:
        parsed.saw("smoke.requeue", "job", max(counts), "count", where)
    else:
        parsed.problems.append(f"{where}: no attempt began")
    return parsed
