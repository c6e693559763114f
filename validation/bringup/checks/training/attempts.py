"""How an attempt ended that did not end by itself, and where the job began before and went on: Slurm's words, and the links."""

from __future__ import annotations

import re
from pathlib import Path

from bringup.errors import RecordError
from bringup.evidence.parsed import Parsed
from bringup.evidence.slurm import NOT_STARTED
from bringup.plan.subjects import rank_subjects
from bringup.records import Continued, Run, RunArgs, TrainMetrics, read_record
from bringup.results import CONTINUED, METRICS, RUN, RUN_ARGS

LAUNCH_LOG = "raw/launch.log"
# without a reason it is what --kill-on-bad-exit does when a rank failed: then the rank is the story
_ENDED = re.compile(r"\*\*\* (?:JOB|STEP) \S+ ON (?P<node>\S+) CANCELLED AT \S+ DUE TO (?P<why>[A-Z ]+?) \*\*\*")
_NO_RESULTS = re.compile(  # training: env.sh; src/rank.py and src/arguments.py
    r"(?P<what>raw/rank\d+\.jsonl cannot be written: [^;]+|run folder cannot be written|no such run folder)\b"
    r".*seen from (?P<node>[\w.-]+)"
)
_SPEEDS = ("train.tokens_per_s", "train.scaling.efficiency")


def derive(parsed: Parsed, folder: Path, run: Run) -> None:
    """Last: what ranks said themselves is not touched. Adds notes, and a reason where a rank came to no end."""
    _links(parsed, folder, run)
    log = _lines(folder)
    _could_not_begin(parsed, log, run)
    _ended_by_slurm(parsed, log, run)
    _resumed(parsed, folder)


def _links(parsed: Parsed, folder: Path, run: Run) -> None:
    if run.continues is not None:
        parsed.problems.append(f"{RUN}:continues: Slurm requeued the job; its attempt before is {run.continues}")
    if (folder / CONTINUED).is_file():
        try:
            later = read_record(folder / CONTINUED, Continued).run
            parsed.problems.append(f"{CONTINUED}: Slurm requeued the job; it went on in {later}")
        except RecordError as error:
            parsed.problems.append(str(error).replace(f"{folder}/", ""))


def _lines(folder: Path) -> list[str]:
    try:
        return (folder / LAUNCH_LOG).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def _could_not_begin(parsed: Parsed, log: list[str], run: Run) -> None:
    """One rank or launcher per node says that it could not start, or not write its results; it holds for all ranks of that node."""
    places = rank_subjects(run.nodes, run.ranks_per_node)
    said = {one.subject for one in parsed.observations if one.quantity == "train.rank.state"}
    found = [
        (match["node"], f"{match['what']}, seen from {match['node']}", f"{LAUNCH_LOG}:{number}")
        for number, line in enumerate(log, start=1)
        if (match := _NO_RESULTS.search(line))
    ]
    found += [
        (one.subject, str(one.value).partition(f"{NOT_STARTED}: ")[2], one.evidence)
        for one in parsed.observations
        if one.quantity == "slurm.launch.error" and NOT_STARTED in str(one.value)
    ]
    for node, why, evidence in found:
        for subject in places:
            if subject.startswith(f"{node}/") and subject not in said:
                parsed.saw("train.rank.state", subject, "could not begin", "text", evidence, why)
                said.add(subject)


def _ended_by_slurm(parsed: Parsed, log: list[str], run: Run) -> None:
    for number, line in enumerate(log, start=1):
        match = _ENDED.search(line)
        if match is None:
            continue
        why = f"Slurm ended the step: {match['why'].lower()}"
        where = f"{LAUNCH_LOG}:{number}"
        parsed.problems.append(f"{where}: {why} (on {match['node']})")
        said = {one.subject for one in parsed.observations if one.quantity == "train.rank.state"}
        for subject in rank_subjects(run.nodes, run.ranks_per_node):
            if subject not in said:
                parsed.saw("train.rank.state", subject, None, "text", where, why)
        return  # every node and step says it again


def _resumed(parsed: Parsed, folder: Path) -> None:
    try:
        args, found = read_record(folder / RUN_ARGS, RunArgs), read_record(folder / METRICS, TrainMetrics)
    except RecordError:
        return  # said where the metrics are read
    if found.resumed is None:
        return
    where, step = f"{METRICS}:resumed", found.resumed.step
    parsed.saw("train.resumed.step", "job", step, "count", where)
    parsed.problems.append(f"{where}: it began after step {step}, with a checkpoint of {found.resumed.run}")
    parsed.problems += [f"{where}: passed over a damaged checkpoint: {line}" for line in found.resumed.passed_over]
    if found.steps_done - step <= args.warmup_steps:
        why = f"it was resumed after step {step} of {found.steps_done}: no step is left after the warm-up"
        for index, one in enumerate(parsed.observations):
            if one.quantity in _SPEEDS:
                parsed.observations[index] = one.model_copy(update={"value": None, "why": why})
