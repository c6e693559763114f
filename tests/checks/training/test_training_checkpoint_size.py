"""The size of a checkpoint is judged against the prediction, in both directions; what is not known does not pass."""

import json
from pathlib import Path
from typing import Any

import pytest
from bringup import judge
from bringup.records import Outcome, Verdict
from trained_runs import STEMS, change, run_of

GATE = "train.checkpoint.size"


def verdict(folder: Path, checkpoint: dict[str, Any] | None = None) -> Verdict:
    if checkpoint is not None:
        recorded = json.loads((folder / "metrics.json").read_text())["checkpoint"]
        change(folder, "metrics.json", checkpoint=recorded | checkpoint)
    return next(verdict for verdict in judge.judge_folder(folder).verdicts.verdicts if verdict.gate == GATE)


@pytest.mark.parametrize("stem", STEMS)
def test_real_runs_wrote_what_was_predicted(tmp_path, stem):
    judged_verdict = verdict(run_of(stem, tmp_path))
    assert judged_verdict.outcome is Outcome.PASS
    assert isinstance(judged_verdict.value, float)
    assert 0.99 < judged_verdict.value < 1.01


@pytest.mark.parametrize(
    ("written", "outcome"),
    [(0.949, Outcome.FAIL), (0.951, Outcome.PASS), (1.049, Outcome.PASS), (1.051, Outcome.FAIL), (0.67, Outcome.FAIL)],
)
def test_too_little_and_too_much_fail(tmp_path, written, outcome):
    folder = run_of("run_fsdp_1node", tmp_path)
    judged_verdict = verdict(folder, {"bytes": round(written * 100 * 2**20), "predicted_bytes": 100 * 2**20})
    assert judged_verdict.outcome is outcome
    assert judged_verdict.observed is not None
    assert "predicted 100.0 MiB" in judged_verdict.observed


def test_what_was_not_predicted_is_incomplete(tmp_path):
    folder = run_of("run_fsdp_1node", tmp_path)
    why = "it was written by other ranks or another strategy"
    judged_verdict = verdict(folder, {"predicted_bytes": None, "predicted_reason": why})
    assert judged_verdict.outcome is Outcome.INCOMPLETE
    assert why in str(judged_verdict.cause)


def test_without_a_checkpoint_it_is_incomplete(tmp_path):
    folder = run_of("run_1gpu", tmp_path)
    change(folder, "metrics.json", checkpoint=None, checkpoint_reason="no checkpoint was requested")
    judged_verdict = verdict(folder)
    assert judged_verdict.outcome is Outcome.INCOMPLETE
    assert "no checkpoint was requested" in str(judged_verdict.cause)
