"""Room on the card, slow steps, and a floor of tokens per second, judged from metrics.json."""

import json
from typing import Any

import pytest
from bringup import judge
from bringup.derive import measured
from bringup.evidence.parsed import Parsed
from bringup.plan import profile
from bringup.records import Observation, Outcome, Run, RunArgs, TrainMetrics
from factory import a_run
from recipe import results
from runs_for_tests import FIXTURES
from showing import shows_failing

RECORDS = FIXTURES / "training/run_ddp_1node"
FULL = {"device_reserved_gib": 79.0, "device_allocated_gib": 70.0, "device_total_gib": 79.2, "allocation_retries": 3}
ROOM = FULL | {"device_reserved_gib": 60.0, "allocation_retries": 0}
EVEN = {"p50": 0.5, "p95": 0.52, "window_steps": 48}


def observed(memory: dict[str, Any] | None = None, steps: dict[str, Any] | None = None) -> dict[str, Observation]:
    data = json.loads((RECORDS / "metrics.json").read_text())
    data["memory"] |= memory or {}
    data["step_time_s"] |= steps or {}
    args = RunArgs.model_validate_json((RECORDS / "run_args.json").read_text())
    run = a_run("run_ddp_1node", ["n0"], profile="generic", gpus=2)
    parsed = measured.of_records(run, args, TrainMetrics.model_validate_json(json.dumps(data)), None)
    return {o.quantity: o for o in parsed.observations}


def judged_observations(run: Run, expected: profile.Profile, seen: list[Observation]) -> dict[tuple[str, str], Outcome]:
    verdicts = judge.judge(run, expected, Parsed(observations=seen)).verdicts
    return {(v.gate, v.subject): v.outcome for v in verdicts}


def outcome(gate: str, **changes: dict[str, Any]) -> Outcome:
    run = a_run("run_ddp_1node", ["n0"], profile="generic", gpus=2)
    return judged_observations(run, profile.load("generic"), list(observed(**changes).values()))[(gate, "job")]


@pytest.mark.parametrize(
    ("gate", "good", "bad"),
    [
        pytest.param(gate, good, bad, marks=shows_failing(gate), id=gate)
        for gate, good, bad in (
            ("train.memory.headroom", {"memory": ROOM}, {"memory": FULL}),
            ("train.memory.retries", {"memory": ROOM}, {"memory": FULL}),
            ("train.step.tail", {"steps": EVEN}, {"steps": EVEN | {"p95": 0.9}}),
        )
    ],
)
def test_a_full_card_and_uneven_steps_warn(gate, good, bad):
    assert outcome(gate, **good) is Outcome.PASS
    assert outcome(gate, **bad) is Outcome.WARN


@pytest.mark.parametrize("gate", ["train.memory.headroom", "train.memory.retries"])
def test_without_a_gpu_nothing_is_said_of_its_memory(gate):
    assert outcome(gate) is Outcome.INCOMPLETE


@pytest.mark.parametrize("steps", [EVEN | {"window_steps": 19}, EVEN | {"p50": 0.02, "p95": 0.03}])
def test_too_few_or_too_short_steps_say_nothing_of_the_slow_ones(steps):
    assert outcome("train.step.tail", steps=steps) is Outcome.INCOMPLETE


@shows_failing("train.tokens_per_s_per_rank")
def test_tokens_per_second_are_judged_only_where_a_floor_is_declared(tmp_path):
    assert profile.load("generic").reason_not_applicable("train.tokens_per_s_per_rank") is not None
    for floor, wanted in ((1.0, Outcome.PASS), (1e12, Outcome.FAIL)):
        file = tmp_path / f"floor-{floor:g}.yaml"
        file.write_text(
            f"schema_version: 1\nname: floor-{floor:g}\ndescription: a floor\nextends: generic\nexpect:\n"
            f"  train.tokens_per_s_per_rank:\n    at_least: {floor}\n    unit: tokens/s\n    source: a test\n"
        )
        with_floor = profile.load(str(file))
        run = a_run("run_ddp_1node", ["n0"], profile="generic", gpus=2)
        outcomes = judged_observations(run, with_floor, list(observed().values()))
        assert outcomes[("train.tokens_per_s_per_rank", "job")] is wanted


def test_the_driver_is_read_from_both_kinds_of_module():
    closed = (
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 22:23:56 UTC 2024\nGCC version: 12\n"
    )
    opened = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build  (dvs)\n"
    assert results.driver_version(closed) == "550.54.15"
    assert results.driver_version(opened) == "580.65.06"
    assert results.driver_version("something else") is None


def test_two_drivers_in_a_run_are_both_recorded():
    versions = {"cuda": ["12.8"], "nccl": ["2.27.3"], "driver": ["550.54.15"]}
    rank = versions | {"gpus": ["NVIDIA H100"], "nics": ["mlx5_0"]}
    environment_of_all = results.environment_of_all([rank, rank | {"driver": ["580.65.06"], "nics": ["mlx5_1"]}])
    assert (environment_of_all.driver, environment_of_all.nics, environment_of_all.gpus) == (
        ["550.54.15", "580.65.06"],
        ["mlx5_0", "mlx5_1"],
        ["NVIDIA H100"],
    )
