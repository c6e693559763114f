"""Speed, memory and checkpoints of a training, judged from its records; and whether its numbers agree."""

import json
from typing import Any

from bringup.kernel import judge
from bringup.kernel import results as runs
from bringup.kernel.plan import profile
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.records import Verdict
from bringup.training.domain import records as measured
from bringup.training.records import REFERENCE_ARGS, REFERENCE_METRICS
from factory import records_in
from loops import for_each
from recipe import results
from runs_for_tests import FAIL, H100, OPEN, PASS, WARN, failing, opened, reseal
from showing import check, shows_failing
from trained_runs import RECORDS, STEMS, bad, change, change_speed, run_of

FULL = {"device_reserved_gib": 79.0, "device_allocated_gib": 70.0, "device_total_gib": 79.2, "allocation_retries": 3}
ROOM = FULL | {"device_reserved_gib": 60.0, "allocation_retries": 0}
EVEN = {"p50": 0.5, "p95": 0.52, "window_steps": 48}
MIB_100 = 100 * 2**20
OTHERS = "it was written by other ranks or another strategy"


def about_job(results: Any, stem: str, used: str = "generic", *, gpus: int = 2, **changes: Any) -> dict[str, Verdict]:
    """Gate -> its verdict on the records of a run on one node. changes: of metrics.json, also of a part of a field."""
    folder = opened(stem, results, used, ["n0"], gpus=gpus, ranks=1 if stem == "run_1gpu" else 2)
    (folder / runs.RUN_ARGS).write_text((RECORDS / stem / runs.RUN_ARGS).read_text())
    metrics = json.loads((RECORDS / stem / runs.METRICS).read_text())
    for name, value in changes.items():
        metrics[name] = metrics[name] | value if isinstance(value, dict) else value
    (folder / runs.METRICS).write_text(json.dumps(metrics))
    return {verdict.gate: verdict for verdict in judge.judge_folder(folder).verdicts.verdicts}


def written(share: float | None) -> dict[str, Any]:
    return {"checkpoint": {"bytes": round((share or 1) * MIB_100), "predicted_bytes": MIB_100}}


SEEN = [
    ("train.memory.headroom", PASS, "", {"memory": ROOM}),
    ("train.memory.headroom", WARN, "", {"memory": FULL}),
    ("train.memory.headroom", OPEN, "", {}),  # without a GPU nothing is known of its memory
    ("train.memory.retries", PASS, "", {"memory": ROOM}),
    ("train.memory.retries", WARN, "", {"memory": FULL}),
    ("train.memory.retries", OPEN, "", {}),
    ("train.step.tail", PASS, "", {"step_time_s": EVEN}),
    ("train.step.tail", WARN, "", {"step_time_s": EVEN | {"p95": 0.9}}),
    ("train.step.tail", OPEN, "", {"step_time_s": EVEN | {"window_steps": 19}}),  # too few
    ("train.step.tail", OPEN, "", {"step_time_s": EVEN | {"p50": 0.02, "p95": 0.03}}),  # too short
    *(("train.checkpoint.size", FAIL, "predicted 100.0 MiB", written(share)) for share in (0.67, 0.949, 1.051)),
    *(("train.checkpoint.size", PASS, "predicted 100.0 MiB", written(share)) for share in (0.951, 1.049)),
    ("train.checkpoint.size", OPEN, OTHERS, {"checkpoint": {"predicted_bytes": None, "predicted_reason": OTHERS}}),
    ("train.checkpoint.size", OPEN, "none asked", {"checkpoint": None, "checkpoint_reason": "none asked"}),
]


@shows_failing(*failing(SEEN))
@for_each(*SEEN)
def test_what_a_run_measured_of_itself_is_judged_and_what_it_did_not_is_unknown(
    tmp_path_factory, gate, outcome, says, changes
):
    check(about_job(tmp_path_factory.mktemp("run"), "run_ddp_1node", **changes)[gate], outcome, says)


def of_peak(mfu: float | None, step_s: float = 0.5, why: str | None = None) -> dict[str, Any]:
    """What the records of a run on one H100 say of it."""
    tflops = None if mfu is None else 989.0 * mfu
    per_s = json.loads((RECORDS / "run_1gpu/metrics.json").read_text())["tokens_per_s_per_rank"]
    per_token = None if tflops is None else tflops * 1e12 / per_s
    speed = {"mfu": mfu, "mfu_reason": why, "peak_tflops": 989.0, "tflops_per_rank": tflops}
    of_step = {"step_time_s": {"p50": step_s}, "rank_times_s": {"step_p50": [step_s]}}
    return speed | {"flops_per_token": per_token, **of_step}


@shows_failing("train.mfu")
@for_each(
    (PASS, "0.38", of_peak(0.38)),
    (FAIL, "0.11", of_peak(0.11)),
    (OPEN, "too little work", of_peak(0.38, step_s=0.02)),
    (OPEN, "no peak is known for H20", of_peak(None, why="no peak is known for H20")),
)
def test_one_gpu_does_its_share_of_its_peak_where_the_workload_is_real(tmp_path_factory, outcome, says, changes):
    by_gate = about_job(tmp_path_factory.mktemp("run"), "run_1gpu", H100, gpus=8, **changes)
    check(by_gate["train.mfu"], outcome, says)


@shows_failing("train.scaling")
@for_each(
    (0.97, 2.0, 0.0, PASS, "0.97"),
    (0.6, 2.0, 0.0, FAIL, "0.6"),
    (0.97, 0.02, 0.0, OPEN, "10 ms on 2 ranks"),  # a step of launches tells nothing, in either direction
    (0.2, 0.02, 0.0, OPEN, "10 ms on 2 ranks"),
    # a step of one GPU has as many micro-steps as there are ranks, and one update; each rank of DDP makes an update
    # for its fewer ones: on 32 H100 a healthy DDP makes 0.8 of one GPU's tokens/s. 0.8 s and the update, 1.2 s
    (0.8, 2.0, 0.4, PASS, "0.96 (0.8 before the optimizer's update is counted"),
)
def test_ranks_that_became_slower_together_fail_where_a_step_is_work(
    tmp_path_factory, share, step_s, optimizer_s, outcome, says
):
    folder = opened("run_ddp_1node", tmp_path_factory.mktemp("run"), "generic", ["n0"])
    (folder / REFERENCE_ARGS).parent.mkdir(exist_ok=True)
    own = (runs.RUN_ARGS, runs.METRICS)
    for stem, names in (("run_1gpu", (REFERENCE_ARGS, REFERENCE_METRICS)), ("run_ddp_1node", own)):
        for source, name in zip((runs.RUN_ARGS, runs.METRICS), names, strict=True):
            (folder / name).write_text((RECORDS / stem / source).read_text())
    reference = json.loads((folder / REFERENCE_METRICS).read_text())
    reference["step_time_s"] |= {"p50": step_s}
    reference["rank_times_s"] |= {"optimizer": [optimizer_s]}
    (folder / REFERENCE_METRICS).write_text(json.dumps(reference))
    change_speed(folder, 2 * share * reference["tokens_per_s_per_rank"])
    check(next(v for v in judge.judge_folder(folder).verdicts.verdicts if v.gate == "train.scaling"), outcome, says)


@shows_failing("train.tokens_per_s_per_rank")
def test_tokens_per_second_are_judged_only_where_a_floor_is_declared(tmp_path):
    gate = "train.tokens_per_s_per_rank"
    assert profile.load("generic").reason_not_applicable(gate) is not None
    for floor, wanted in ((1.0, PASS), (1e12, FAIL)):
        file = tmp_path / f"floor-{floor:g}.yaml"
        file.write_text(
            f"schema_version: 1\nname: floor-{floor:g}\ndescription: a floor\nextends: generic\nexpect:\n"
            f"  {gate}:\n    at_least: {floor}\n    unit: tokens/s\n    source: a test\n"
        )
        assert about_job(tmp_path, "run_ddp_1node", str(file))[gate].outcome is wanted


def test_the_drivers_of_all_ranks_are_read_from_both_kinds_of_module():
    closed = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 1\n"
    of_two = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs)\n"
    read = [version for text in (closed, of_two, "something else") for version in results.DRIVER_VERSION.findall(text)]
    assert read == ["550.54.15", "580.65.06"]
    rank = {"cuda": ["12.8"], "nccl": ["2.27.3"], "driver": read[:1], "gpus": ["NVIDIA H100"], "nics": ["mlx5_0"]}
    of_all = results.environment_of_all([rank, rank | {"driver": read[1:], "nics": ["mlx5_1"]}])
    assert (of_all.driver, of_all.nics, of_all.gpus) == (read, ["mlx5_0", "mlx5_1"], ["NVIDIA H100"])


# ---- a training's numbers agree with each other, or no speed of it is judged, compared or advised with

AGREE = "train.records.agree"
ENDS = "the ends of the same steps by the host's clock"


@for_each(*STEMS)
def test_recorded_trainings_agree_with_themselves(stem):
    records = records_in(RECORDS / stem)
    assert list(measured.contradictions(records.args, records.metrics)) == []


@shows_failing(AGREE)
@for_each(1000, 1.05, 0.5)
def test_a_speed_that_its_own_steps_do_not_make_is_judged_and_compared_with_nothing(tmp_path_factory, factor):
    run = run_of("run_fsdp_2node", tmp_path_factory.mktemp("run"))
    metrics = records_in(run).metrics
    names = ("tokens_per_s", "tokens_per_s_per_rank")
    change(run, "metrics.json", **{name: getattr(metrics, name) * factor for name in names})
    verdict = bad(reseal(run))[AGREE, "job"]
    assert verdict.outcome is FAIL
    assert "tokens_per_step over the mean of steps_s gives" in (verdict.cause or "")
    assert all(AGREE in GATES[gate].needs for gate in ("train.scaling", "train.mfu"))
    assert str(judge.judge_folder(run).objection).startswith(f"{AGREE}: tokens_per_s is ")


@for_each(
    ("run_args.json", "world_size", 4000, "run_args.json has world_size 4000, metrics.json 4"),
    ("metrics.json", "tokens_per_step", lambda now: now * 2, "global batch times sequence length gives"),
    # the same begin, another clock
    ("metrics.json", "steps_unix_s", lambda now: [now[0] + (at - now[0]) / 10 for at in now], ENDS),
    ("metrics.json", "steps_unix_s", lambda now: [now[0] + (at - now[0]) * 10 for at in now], ENDS),
    ("metrics.json", "tokens_per_s_per_rank", lambda now: now * 2, "tokens_per_s over the ranks gives"),
    ("metrics.json", "step_time_s", lambda now: now | {"p50": now["p50"] * 3}, "step_time_s.p50 is"),
    ("metrics.json", "step_time_s", lambda now: now | {"p50": now["p50"] * 0.3}, "step_time_s.p50 is"),
    ("metrics.json", "tflops_per_rank", lambda now: now * 2, "flops_per_token times tokens/s per rank gives"),
    ("metrics.json", "straggler", None, "straggler is null, and the ranks' own work was timed"),
)
def test_each_number_is_held_by_the_others(tmp_path_factory, file, field, changed, says):
    run = run_of("run_fsdp_2node", tmp_path_factory.mktemp("run"))
    now = json.loads((run / file).read_text())[field]
    change(run, file, **{field: changed(now) if callable(changed) else changed})
    records = records_in(run)
    assert any(says in sentence for sentence in measured.contradictions(records.args, records.metrics))


def test_a_host_that_is_ahead_of_its_gpu_contradicts_nothing():
    """A GPU's events time the steps; the host asked for the next two before this one ended."""
    records = records_in(RECORDS / "run_ddp_2node")
    metrics = records.metrics
    step_s, begin = sum(metrics.steps_s) / len(metrics.steps_s), metrics.steps_unix_s[0]
    last = len(metrics.steps_unix_s) - 1
    ends = [begin + step_s * max(0, min(number, last - 2)) for number in range(last + 1)]
    assert list(measured.contradictions(records.args, metrics.model_copy(update={"steps_unix_s": ends}))) == []
