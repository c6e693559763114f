"""How long our own trainers stand after a fault: the same times as of a user's command, from their own records.

A node that is lost ends the attempt, and Slurm starts the job again (`--requeue`). After a fault of a rank it does not:
the job is submitted again here, with --resume, as soon as it has ended.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bringup.drill.catalogue import Shape
from bringup.drill.environment import LocalCluster
from bringup.drill.perform import INJECTED
from bringup.kernel import judge
from bringup.kernel import results as runs
from bringup.kernel.errors import BringupError, DrillError
from bringup.kernel.records import Outcome
from preflight_cases import FAULT_AT_STEP, PLAIN, Score

PHASE, CULPRIT = "run_fsdp_2node", "n1"  # the second of its two nodes
STEPS, EVERY = 19, 5  # with fewer than 20 steps each one is told
OPTIONS = ("--steps", str(STEPS), "--save-steps", str(EVERY), "--global-batch", "8", "--sequence-length", "64")
LIMIT_S = 500


@dataclass(frozen=True)
class Own:
    name: str
    fault: str
    drill: dict[str, str] = field(default_factory=dict)  # none: the node is powered off
    options: tuple[str, ...] = ()
    shape: Shape = PLAIN


def _in_rank(fault: str) -> dict[str, str]:
    path = ":".join(filter(None, (str(INJECTED), os.environ.get("PYTHONPATH"))))
    return {"BRINGUP_DRILL": f"{fault}-rank:3@{FAULT_AT_STEP}", "PYTHONPATH": path}


CASES = [
    Own("own-node-off", "FSDP: a node is off; Slurm requeues the job"),
    Own("own-rank-killed", "FSDP: a rank is killed; submitted again", _in_rank("kill")),
    Own("own-rank-hangs", "FSDP, --timeout 20: a rank hangs; submitted again", _in_rank("hang"), ("--timeout", "20")),
]


def perform(case: Own, cluster: LocalCluster) -> Score:
    """Raises DrillError."""
    first = runs.REPOSITORY / f"training/results/{PHASE}-{case.name}-{os.getpid()}"
    second = first.with_name(f"{first.name}-r1")
    try:
        job = _submit(cluster, first, case.drill, *case.options)
        _wait(lambda: _steps_shown(first)[-1:] >= [FAULT_AT_STEP], f"step {FAULT_AT_STEP} of {case.name}")
        fault_at = time.time()
        if not case.drill:
            cluster.make((("off", CULPRIT),))
        noticed_at = _wait(lambda: not _runs(cluster, job), "its end")
        if case.drill:
            second = first.with_name(f"{first.name}-again")
            _submit(cluster, second, {}, "--resume", str(first))
        named_at = _wait(lambda: _names(first), "a verdict that names the culprit", pause_s=1)
        done = _steps_shown(first)
        goes_on_at = _wait(lambda: _steps_shown(second)[-1:] > done[-1:], "a new step")
        lost = len(set(done) & set(_steps_shown(second)))
    finally:
        cluster.verb("sh", "scancel", "--quiet", "--me")
        if not case.drill:
            cluster.make((("boot", CULPRIT),))
        for folder in first.parent.glob(f"{first.name}*"):
            shutil.rmtree(folder, ignore_errors=True)
    times = [round(moment - fault_at, 1) for moment in (noticed_at, named_at, goes_on_at)]
    return Score(case.name, first.name, True, "", "", 0, lost, 0, "", *times, round(os.getloadavg()[0]))


def _submit(cluster: LocalCluster, run: Path, environment: dict[str, str], *options: str) -> str:
    name = run.name.removeprefix(f"{PHASE}-")
    command = ("sbatch", "--parsable", "--nodes=2", f"training/slurm/{PHASE}.sbatch", *OPTIONS, *options)
    done = cluster.verb("sh", *command, environment={"BRINGUP_RUN_NAME": name, **environment})
    if done.returncode != 0:
        raise DrillError(done.stderr)
    return done.stdout.strip()


def _steps_shown(run: Path) -> list[int]:
    """Steps, as rank 0 tells them."""
    log = run / "raw/launch.log"
    return [int(step) for step in re.findall(rf"step (\d+)/{STEPS}\b", log.read_text())] if log.exists() else []


def _runs(cluster: LocalCluster, job: str) -> bool:
    return cluster.verb("sh", "squeue", "--noheader", "--jobs", job, "--format", "%T").stdout.strip() == "RUNNING"


def _names(run: Path) -> bool:
    with contextlib.suppress(BringupError, OSError):
        verdicts = judge.judge_folder(run).verdicts.verdicts
        return any(v.outcome is Outcome.FAIL and v.subject == f"{CULPRIT}/rank3" for v in verdicts)
    return False


def _wait(condition: Callable[[], bool], what: str, pause_s: float = 0.1) -> float:
    """When it was seen, seconds since 1970."""
    deadline = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise DrillError(f"not seen within {LIMIT_S} s: {what}")
        time.sleep(pause_s)
    return time.time()
