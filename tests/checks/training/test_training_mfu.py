"""Whether one GPU does its share of its peak: told from a real workload, and from no other."""

import json
from pathlib import Path
from typing import Any

import pytest
from bringup import judge
from bringup import results as runs
from bringup.records import Outcome, Verdict
from runs_for_tests import FIXTURES, opened
from showing import shows_failing

RECORDS = FIXTURES / "training/run_1gpu"
PEAK_TFLOPS = 989.0


def verdict(results: Path, *, step_s: float = 0.5, **change: Any) -> Verdict:
    """The verdict on a run on one H100 whose records say so."""
    folder = opened("run_1gpu", results, "h100-8x400g", ["n0"], gpus=8, ranks=1)
    (folder / runs.RUN_ARGS).write_text((RECORDS / runs.RUN_ARGS).read_text())
    metrics = json.loads((RECORDS / runs.METRICS).read_text())
    metrics["step_time_s"] |= {"p50": step_s}
    metrics["rank_times_s"] |= {"step_p50": [step_s]}
    mfu = change.get("mfu", 0.38)
    tflops = None if mfu is None else mfu * PEAK_TFLOPS
    metrics |= {"mfu": mfu, "mfu_reason": None, "peak_tflops": PEAK_TFLOPS, "tflops_per_rank": tflops}
    metrics["flops_per_token"] = None if tflops is None else tflops * 1e12 / metrics["tokens_per_s_per_rank"]
    (folder / runs.METRICS).write_text(json.dumps(metrics | change))
    return next(metrics for metrics in judge.judge_folder(folder).verdicts.verdicts if metrics.gate == "train.mfu")


@pytest.mark.parametrize(
    ("mfu", "outcome"), [(0.38, Outcome.PASS), pytest.param(0.11, Outcome.FAIL, marks=shows_failing("train.mfu"))]
)
def test_a_gpu_below_the_floor_fails(tmp_path, mfu, outcome):
    judged_verdict = verdict(tmp_path, mfu=mfu)
    assert judged_verdict.outcome is outcome, judged_verdict
    assert judged_verdict.value == mfu


def test_what_is_too_little_work_or_has_no_peak_is_no_pass(tmp_path):
    short = verdict(tmp_path / "a", step_s=0.02)
    assert short.outcome is Outcome.INCOMPLETE
    assert "too little work" in (short.cause or "")
    unknown = verdict(tmp_path / "b", mfu=None, mfu_reason="no peak is known for H20")
    assert unknown.outcome is Outcome.INCOMPLETE
    assert "no peak is known for H20" in (unknown.cause or "")
