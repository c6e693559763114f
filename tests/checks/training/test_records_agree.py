"""A training's numbers agree with each other, or no speed of it is judged, compared or advised with."""

import json
from pathlib import Path

import pytest
from bringup import judge, results
from bringup.derive import agreement
from bringup.plan.catalogue import GATES
from bringup.records import Outcome
from bringup.results import TrainingRecords
from showing import shows_failing
from trained_runs import RECORDS, STEMS, bad, change, run_of

GATE = "train.records.agree"


@pytest.mark.parametrize("stem", STEMS)
def test_recorded_trainings_agree_with_themselves(stem):
    records = TrainingRecords(RECORDS / stem)
    assert list(agreement.contradictions(records.args, records.metrics)) == []


@shows_failing(GATE)
@pytest.mark.parametrize("factor", [1000, 1.05, 0.5])
def test_a_speed_that_its_own_steps_do_not_make_is_judged_and_compared_with_nothing(tmp_path, factor):
    run = run_of("run_fsdp_2node", tmp_path)
    metrics = TrainingRecords(run).metrics
    names = ("tokens_per_s", "tokens_per_s_per_rank")
    change(run, "metrics.json", **{name: getattr(metrics, name) * factor for name in names})
    sealed(run)
    verdict = bad(run)[GATE, "job"]
    assert verdict.outcome is Outcome.FAIL
    assert "tokens_per_step over the mean of steps_s gives" in (verdict.cause or "")
    assert all(GATE in GATES[gate].needs for gate in ("train.scaling", "train.mfu"))
    objection = judge.judge_folder(run).objection
    assert objection is not None
    assert objection.startswith(f"{GATE}: tokens_per_s is ")


@pytest.mark.parametrize(
    ("file", "field", "factor", "says"),
    [
        ("run_args.json", "world_size", 1000, "run_args.json has world_size 4000, metrics.json 4"),
        ("metrics.json", "tokens_per_step", 2, "global batch times sequence length gives"),
        ("metrics.json", "steps_unix_s", 0.1, "the ends of the same steps by the host's clock"),
        ("metrics.json", "tokens_per_s_per_rank", 2, "tokens_per_s over the ranks gives"),
        ("metrics.json", "step_time_s", 3, "step_time_s.p50 is"),
        ("metrics.json", "tflops_per_rank", 2, "flops_per_token times tokens/s per rank gives"),
        ("metrics.json", "straggler", None, "straggler is null, and the ranks' own work was timed"),
    ],
)
def test_each_number_is_held_by_the_others(tmp_path, file, field, factor, says):
    run = run_of("run_fsdp_2node", tmp_path)
    now = json.loads((run / file).read_text())[field]
    if isinstance(now, list):
        value: object = [now[0] + (at - now[0]) * factor for at in now]  # the same begin, another clock
    elif isinstance(now, dict):
        value = now if factor is None else now | {"p50": now["p50"] * factor}
    else:
        value = None if factor is None else now * factor
    value = None if factor is None else value
    change(run, file, **{field: value})
    records = TrainingRecords(run)
    assert any(says in sentence for sentence in agreement.contradictions(records.args, records.metrics))


def test_a_host_that_is_ahead_of_its_gpu_contradicts_nothing():
    """A GPU's events time the steps; the host asked for the next two before this one ended."""
    records = TrainingRecords(RECORDS / "run_ddp_2node")
    metrics = records.metrics
    step_s, begin = sum(metrics.steps_s) / len(metrics.steps_s), metrics.steps_unix_s[0]
    last = len(metrics.steps_unix_s) - 1
    ends = [begin + step_s * max(0, min(number, last - 2)) for number in range(last + 1)]
    ahead = metrics.model_copy(update={"steps_unix_s": ends})
    assert list(agreement.contradictions(records.args, ahead)) == []


def sealed(run: Path) -> None:
    """The run's checksums are of what it holds now: whoever wrote it wrote it so."""
    closed = run / results.CLOSED
    closed.write_text(json.dumps(json.loads(closed.read_text()) | {"files": results.checksums(run)}))
