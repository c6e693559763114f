"""A rank that stood still for a while: who it was, on records of real runs of the tiny model."""

import json
from pathlib import Path
from typing import Any

from bringup.records import Outcome, Verdict
from trained_runs import bad, change, run_of

STILL = {"seconds": 20.2, "step": 9, "part": "process", "cpu_s": 0.01}
BEATING = {"seconds": 0.0, "step": None, "part": None, "cpu_s": None}


def stood_still(tmp_path: Path, *standstills: dict[str, Any], excess_s: float = 20.0) -> Path:
    """In step 9 every rank took so much longer."""
    folder = run_of("run_ddp_2node", tmp_path)
    steps = json.loads((folder / "metrics.json").read_text())["steps_s"]
    steps[6] = steps[0] + excess_s
    change(folder, "metrics.json", steps_s=steps, standstills=list(standstills))
    return folder


def stalls(folder: Path) -> dict[tuple[str, str], Verdict]:
    return {pair: verdict for pair, verdict in bad(folder).items() if "stall" in pair[0]}


def test_the_rank_that_was_stopped_fails_and_those_that_waited_pass(tmp_path):
    by_gate = stalls(stood_still(tmp_path, BEATING, BEATING, BEATING, STILL))
    assert set(by_gate) == {("train.stall", "job"), ("train.rank.stall", "n1/rank3")}
    rank, job = by_gate["train.rank.stall", "n1/rank3"], by_gate["train.stall", "job"]
    assert rank.outcome is job.outcome is Outcome.FAIL
    assert rank.value == 20.2
    assert "in step 9: the process stood still" in str(rank.cause) + rank.observed
    assert "step 9 took" in str(job.cause) + job.observed
    assert "n1/rank3 stood still for 20.2 s" in str(job.cause) + job.observed


def test_a_process_that_computed_meanwhile_was_not_stopped(tmp_path):
    by_gate = stalls(stood_still(tmp_path, BEATING, BEATING, BEATING, STILL | {"cpu_s": 19.0}))
    verdict = by_gate["train.rank.stall", "n1/rank3"]
    assert "one call kept the interpreter for itself" in str(verdict.cause) + verdict.observed


def test_where_no_rank_stood_still_itself_nobody_is_named(tmp_path):
    by_gate = stalls(stood_still(tmp_path, BEATING, BEATING, BEATING, BEATING))
    assert set(by_gate) == {("train.stall", "job")}
    verdict = by_gate["train.stall", "job"]
    assert "no rank stood still in what it does itself" in str(verdict.cause) + verdict.observed


def test_a_step_that_is_a_little_longer_is_no_stall(tmp_path):
    assert stalls(stood_still(tmp_path, BEATING, BEATING, BEATING, BEATING, excess_s=1.0)) == {}


def test_slow_steps_are_compared_with_themselves(tmp_path):
    folder = stood_still(tmp_path, BEATING, BEATING, BEATING, BEATING)
    change(folder, "metrics.json", steps_s=[40.0, 55.0, 41.0, 42.0, 40.0])  # 15 s more than the median, and uneven only
    assert stalls(folder) == {}


def test_of_two_steps_none_is_usual(tmp_path):
    folder = run_of("run_ddp_1node", tmp_path)
    change(folder, "metrics.json", steps_s=[0.1, 30.0])
    assert stalls(folder)["train.stall", "job"].outcome is Outcome.INCOMPLETE
