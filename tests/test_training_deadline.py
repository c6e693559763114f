"""A training stops early enough before its time limit to write its last checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_checkpoints import one_process
from test_training_runs import ROOT, SOURCE
from tiers import in_test_all

sys.path.append(str(SOURCE))
pytestmark = pytest.mark.filterwarnings("default")


def lead_s(save_s: float, left_s: float = 36_000) -> float:
    from recipe.checkpoint.stopping import StopOnRequest

    return round(StopOnRequest(None, round(time.time() + left_s), lambda: save_s).lead_s, -1)


def test_the_lead_is_twice_the_last_save_and_never_less_than_slurm_warns() -> None:
    assert (lead_s(0), lead_s(59), lead_s(600)) == (120, 120, 1200)


def test_a_save_that_would_take_the_whole_job_leaves_half_of_it_for_training() -> None:
    assert lead_s(3600, left_s=1800) == 900


@in_test_all
def test_the_time_limit_ends_a_training_with_a_checkpoint(tmp_path: Path) -> None:
    ends_at, file = int(time.time()) + 15, tmp_path / "stop"
    run = one_process(tmp_path / "run", "--steps", "4000", "--ends-at", str(ends_at), "--stop-file", str(file))
    assert run.codes == [0], run.output
    assert "s are left for the last checkpoint" in run.output
    assert file.exists()  # by which the batch script knows that it has to requeue the job
    assert not (run.folder / "metrics.json").exists()
    assert len(list((run.folder / "checkpoints").glob("step-*/checkpoint.json"))) == 1


@pytest.mark.parametrize(
    ("shown", "environment", "option"),
    [
        ("2026-01-01T00:00:00", {}, "--ends-at 1767225600"),
        ("N/A", {}, ""),
        ("", {}, ""),
        ("2026-01-01T00:00:00", {"SLURM_JOB_END_TIME": "1767229200"}, "--ends-at 1767229200"),
    ],
)
def test_the_batch_script_says_when_slurm_ends_the_job(
    tmp_path: Path, shown: str, environment: dict[str, str], option: str
) -> None:
    squeue = tmp_path / "squeue"
    squeue.write_text(f'#!/bin/sh\n[ -n "{shown}" ] || exit 1\necho "{shown}"\n')
    squeue.chmod(0o755)
    script = (
        "set -euo pipefail; source training/slurm/attempt.sh; read_counters() { :; }; start_monitor() { :; }\n"
        'gpus_on_node() { echo 1; }; nanoseconds() { echo 1; }; begin_attempt; echo "${TIME_LIMIT[*]}"'
    )
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "TZ": "UTC"} | environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{option}\n", "")
