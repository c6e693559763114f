"""Predicted memory against measured: what is counted, what fails, and what stays unknown."""

import json
import shutil
from typing import Any

import pytest
import torch
from bringup.kernel import judge
from bringup.kernel.records import Verdict, read_record
from bringup.run import open as opening
from bringup.training.formulae.models import Job, job_of
from bringup.training.records import RunArgs
from loops import for_each
from recipe import memory as states
from runs_for_tests import FAIL, FIXTURES, OPEN, PASS, WARN, opened
from showing import check, shows_failing

GIB = 2**30
# of a run of the tiny model on 2 ranks
HEALTHY = {"states_measured_bytes": 1_708_700, "states_predicted_bytes": 1_708_544, "states_rank": 0, "reason": None}
HEALTHY |= {"peak_measured_bytes": None, "peak_predicted_bytes": 47_468_160, "peak_least_bytes": 1_708_544}
ON_GPU = HEALTHY | {"peak_measured_bytes": 40 * GIB, "peak_predicted_bytes": 41 * GIB, "peak_least_bytes": 16 * GIB}


def verdicts(results, check, *, profile_name="local-cpu", **args) -> dict[str, Verdict]:
    """The verdicts of the two gates on a run with this memory_check in metrics.json."""
    folder = opened("run_fsdp_1node", results, profile_name, ["n0"])
    shutil.copyfile(FIXTURES / "training/run_fsdp_1node/run_args.json", folder / "run_args.json")
    for file, changes in (("metrics.json", {"memory_check": check}), ("run_args.json", args)):
        text = (FIXTURES / "training/run_fsdp_1node" / file).read_text()
        (folder / file).write_text(json.dumps(json.loads(text) | changes))
    opening.close_run(folder, 0)
    all_of_them = judge.judge_folder(folder).verdicts.verdicts
    return {verdict.gate: verdict for verdict in all_of_them if verdict.gate.startswith("train.memory.")}


def test_states_as_predicted_pass_and_the_verdict_holds_both_numbers(tmp_path):
    by_gate = verdicts(tmp_path, HEALTHY)
    check(by_gate["train.memory.states"], PASS, "1.6 MiB on rank 0, predicted 1.6 MiB")
    assert "train.memory.peak" not in by_gate  # not applicable without a GPU


@pytest.mark.parametrize("factor", [0.5, 0.84, 1.16, 1.5, 2.0, 16.0])
def test_states_that_are_not_the_predicted_ones_fail(tmp_path, factor):
    check = HEALTHY | {"states_measured_bytes": int(factor * 1_708_544)}
    verdict = verdicts(tmp_path, check)["train.memory.states"]
    assert verdict.outcome is FAIL
    assert "predicted 1.6 MiB" in (verdict.cause or "")


COMPILED = {"compile": True}


@shows_failing("train.memory.peak")
@for_each(
    ({}, {}, PASS, ""),
    ({"peak_measured_bytes": 60 * GIB}, {}, WARN, ""),
    ({"peak_measured_bytes": 20 * GIB}, {}, WARN, ""),
    ({"peak_measured_bytes": 20 * GIB}, COMPILED, PASS, ""),  # fused kernels keep less
    ({"peak_measured_bytes": 60 * GIB}, COMPILED, WARN, ""),
    ({"peak_measured_bytes": 900 * 2**20, "peak_predicted_bytes": 81 * 2**20}, {}, OPEN, ""),
    ({"peak_measured_bytes": 4 * GIB, "peak_predicted_bytes": 81 * 2**20, "peak_least_bytes": 2**24}, {}, WARN, ""),
    ({"peak_measured_bytes": None}, {}, OPEN, ""),
    ({"states_measured_bytes": 2**40}, {}, OPEN, ""),  # judged after the states
    ({"peak_measured_bytes": 15 * GIB}, {}, OPEN, "at least 16,384.0 MiB"),  # less than the states that are held
    ({"peak_measured_bytes": 15 * GIB}, COMPILED, OPEN, ""),
    ({"peak_predicted_bytes": None, "reason": "a mixture of experts"}, {}, OPEN, "a mixture of experts"),
    *(  # a peak of nothing passed with fused kernels, and where the prediction was close to 1 GiB
        (nothing, args, OPEN, "0 bytes")
        for nothing in ({"peak_measured_bytes": 0}, {"peak_measured_bytes": 0, "peak_predicted_bytes": 11 * GIB // 10})
        for args in ({}, COMPILED, {"recipe": "fast"})
    ),
)
def test_the_peak_on_a_gpu(tmp_path_factory, changes, args, outcome, says):
    by_gate = verdicts(tmp_path_factory.mktemp("run"), ON_GPU | changes, profile_name="generic", **args)
    check(by_gate["train.memory.peak"], outcome, says)
    assert by_gate["train.memory.states"].outcome is (FAIL if "states_measured_bytes" in changes else PASS)


def test_the_layout_follows_from_the_arguments_of_a_run():
    def job(stem: str, **changes: Any) -> Job:
        return job_of(read_record(FIXTURES / "training" / stem / "run_args.json", RunArgs).model_copy(update=changes))

    assert job("run_fsdp_2node") == Job("fsdp", 2, 2, 128, 16, 1, compute_bytes=4)
    assert job("run_fsdp_2node", reshard_after_forward=False).kind == "zero2"
    assert job("run_hsdp_2node").shards == 2
    bf16 = job("run_ddp_1node", compute_dtype="bfloat16", reduce_dtype="float32", attention="eager")
    assert (bf16.compute_bytes, bf16.reduce_bytes, bf16.eager_attention) == (2, 4, True)
    assert job("run_fsdp_1node", compute_dtype="bfloat16", reduce_dtype="bfloat16").reduce_bytes == 2


@pytest.mark.filterwarnings("default")
def test_states_are_the_storages_behind_the_tensors_each_once():
    model = torch.nn.Linear(8, 4, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 8)).sum().backward()
    optimizer.step()
    bytes_of = states.states_bytes(model, optimizer)
    assert bytes_of == {"parameters": 128, "gradients": 128, "optimizer": 2 * 128 + 4}  # and a step counter
    buffer = torch.zeros(1000)
    model.weight.grad = buffer[:32].view(4, 8)  # a view keeps all of its buffer alive
    assert states.states_bytes(model, optimizer)["gradients"] == 4000
    optimizer.zero_grad()
    assert states.states_bytes(model, optimizer)["gradients"] == 0
