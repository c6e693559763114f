"""A training stops early enough before its time limit to write its last checkpoint."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bringup.plan import profile
from test_checkpoints import one_process, refusal
from test_training_runs import ROOT, SOURCE

sys.path.append(str(SOURCE))
pytestmark = pytest.mark.filterwarnings("default")


def lead(
    save_s: float, *, step_s: float = 1.0, left_s: float = 36_000, asked_s: int | None = None
) -> tuple[float, str]:
    from recipe.stopping import StopOnRequest

    stop = StopOnRequest(None, round(time.time() + left_s), asked_s, lambda: (save_s, "from the last save"))
    stop._longest_step_s = step_s
    seconds, source = stop.lead
    return round(seconds), source.partition(",")[0]


def test_the_lead_follows_from_the_save_and_is_never_less_than_slurm_warns() -> None:
    assert lead(0.1) == (120, "the least")
    assert lead(600) == (2 * 601 + 60, "from the last save")
    assert lead(600, step_s=90) == (2 * 690 + 60, "from the last save")
    assert lead(0.1, asked_s=30) == (30, "--stop-lead")


def test_a_save_that_would_take_the_whole_job_leaves_half_of_it_for_training() -> None:
    seconds, source = lead(3600, left_s=1800)
    assert 895 <= seconds <= 905
    assert source == "half of the time that was left"


def test_a_lead_that_the_time_limit_does_not_leave_is_refused() -> None:
    from recipe.strategy import Refused

    with pytest.raises(Refused, match=r"--stop-lead 600: expected less than the time limit leaves, observed .* s left"):
        lead(1, left_s=300, asked_s=600)


def test_without_a_time_limit_there_is_no_lead() -> None:
    from recipe.stopping import StopOnRequest

    stop = StopOnRequest(None, None, None, lambda: (1.0, "x"))
    assert (stop.fields(), stop.looks) == ({}, False)


def test_the_rates_that_are_assumed_are_those_that_the_profile_requires() -> None:
    from recipe import checkpoint_room

    expect = profile.load("generic").expect
    alone, together = (expect[f"smoke.storage.{name}"].at_least for name in ("write", "write_together"))
    assert alone is not None
    assert together is not None
    assert checkpoint_room.assumed_bytes_per_s(1) == alone * 1e9
    assert checkpoint_room.assumed_bytes_per_s(64) == 64 * together * 1e9


def test_many_nodes_write_a_large_checkpoint_together_so_the_lead_leaves_time_to_train() -> None:
    """A model of 70e9 parameters, with optimizer state 1.1 TB, on 64 nodes: half an hour. At 0.1 GB/s it was six."""
    from recipe import checkpoint_room

    seconds, source = lead(70e9 * 16 / checkpoint_room.assumed_bytes_per_s(64), left_s=4 * 3600)
    assert (seconds, source) == (1812, "from the last save")


def test_the_time_limit_ends_a_training_with_a_checkpoint(tmp_path: Path) -> None:
    ends_at, file = int(time.time()) + 15, tmp_path / "stop"
    run = one_process(tmp_path / "run", "--steps", "4000", "--ends-at", str(ends_at), "--stop-file", str(file))
    assert run.codes == [0], run.output
    assert "the time limit is near: " in run.output
    assert "are kept for the last checkpoint (half of the time that was left" in run.output
    assert file.exists()  # by which the batch script knows that it has to requeue the job
    assert not (run.folder / "metrics.json").exists()
    assert len(list((run.folder / "checkpoints").glob("step-*/checkpoint.json"))) == 1


def test_a_lead_is_recorded(tmp_path: Path) -> None:
    ends_at = str(int(time.time()) + 600)
    run = one_process(tmp_path / "run", "--save-steps", "3", "--ends-at", ends_at)
    assert run.codes == [0], run.output
    room = run.metrics().checkpoint_room
    assert room is not None
    assert (room.stop_lead_s, room.stop_lead_source) == (120, "the least")
    late = one_process(tmp_path / "late", "--ends-at", ends_at, "--stop-lead", "10000")
    assert "--stop-lead 10000: expected less than the time limit leaves" in refusal(late)


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
