"""Answers of Slurm about jobs, whoever's they are: records of `scontrol show job`, tables of `sacct --parsable2`."""

import re

from bringup.kernel.facts.parser_result import cut, lines

OF_A_JOB = (
    *("JobID", "JobIDRaw", "User", "Partition", "State", "ExitCode", "NodeList", "Start", "End", "AllocTRES"),
    "WorkDir",
)
"""Columns of `sacct --parsable2`; free text comes last."""
OF_LOGS = ("StdErr", "StdOut")  # 26.05 has them, 22.05 has not
OF_A_STEP = ("JobID", "State", "NTasks", "Layout", "NodeList")
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
