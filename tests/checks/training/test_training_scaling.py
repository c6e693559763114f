"""Whether more ranks were as fast, each: told from a workload that is large enough, and from no other."""

import json
from pathlib import Path

import pytest
from bringup import judge
from bringup import results as runs
from bringup.records import REFERENCE_ARGS, REFERENCE_METRICS, Outcome, Verdict
from runs_for_tests import FIXTURES, opened
from showing import shows_failing
from trained_runs import change_speed

RECORDS = FIXTURES / "training"


def scaling(results: Path, *, reference_step_s: float, share: float, optimizer_s: float = 0.0) -> Verdict:
    """The verdict on a DDP run on two ranks, each of which made `share` of the tokens/s of the one-GPU run."""
    folder = opened("run_ddp_1node", results, "generic", ["n0"])
    for stem, names in (
        ("run_1gpu", (REFERENCE_ARGS, REFERENCE_METRICS)),
        ("run_ddp_1node", (runs.RUN_ARGS, runs.METRICS)),
    ):
        for source, name in zip((runs.RUN_ARGS, runs.METRICS), names, strict=True):
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text((RECORDS / stem / source).read_text())
    reference = json.loads((folder / REFERENCE_METRICS).read_text())
    reference["step_time_s"] |= {"p50": reference_step_s}
    reference["rank_times_s"] |= {"optimizer": [optimizer_s]}
    (folder / REFERENCE_METRICS).write_text(json.dumps(reference))
    change_speed(folder, 2 * share * reference["tokens_per_s_per_rank"])
    return next(verdict for verdict in judge.judge_folder(folder).verdicts.verdicts if verdict.gate == "train.scaling")


@pytest.mark.parametrize(
    ("share", "outcome"), [(0.97, Outcome.PASS), pytest.param(0.6, Outcome.FAIL, marks=shows_failing("train.scaling"))]
)
def test_ranks_that_became_slower_together_fail_where_a_step_is_work(tmp_path, share, outcome):
    verdict = scaling(tmp_path, reference_step_s=2.0, share=share)
    assert verdict.outcome is outcome
    assert verdict.observed.startswith(str(share))


def test_a_step_of_launches_says_nothing_about_scaling_in_either_direction(tmp_path):
    for share in (0.97, 0.2):
        verdict = scaling(tmp_path / str(share), reference_step_s=0.02, share=share)
        assert verdict.outcome is Outcome.INCOMPLETE
        assert "10 ms on 2 ranks" in (verdict.cause or "")


def test_the_update_of_the_optimizer_is_not_divided_among_ranks_that_all_make_it(tmp_path):
    """A step of one GPU has as many micro-steps as there are ranks, and one update. Ranks of DDP that are as fast have
    an update for each of their fewer micro-steps: on 32 H100 a healthy DDP makes 0.8 of one GPU's tokens/s."""
    verdict = scaling(tmp_path, reference_step_s=2.0, optimizer_s=0.4, share=0.8)  # 0.8 s and the update, 1.2 s
    assert verdict.outcome is Outcome.PASS
    assert verdict.value == pytest.approx(0.96)
    assert "0.8 before the optimizer's update is counted" in verdict.observed
