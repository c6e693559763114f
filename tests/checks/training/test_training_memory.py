"""Predicted memory against measured: what is counted, what fails, and what stays unknown."""

import json
import shutil
from typing import Any

import predict
import pytest
import torch
from bringup import judge
from bringup.formulae import memory, models, traffic
from bringup.formulae.models import Job, job_of
from bringup.records import Outcome, RunArgs, Verdict, read_record
from bringup.run import open as opening
from recipe import memory as states
from runs_for_tests import FIXTURES, opened
from showing import shows_failing
from torch.distributed.tensor import debug

GIB = 2**30
HEALTHY = {
    "states_measured_bytes": 1_708_700,
    "states_predicted_bytes": 1_708_544,
    "states_rank": 0,
    "peak_measured_bytes": None,
    "peak_predicted_bytes": 47_468_160,
    "peak_least_bytes": 1_708_544,
    "reason": None,
}  # of a run of the tiny model on 2 ranks
ON_GPU = HEALTHY | {"peak_measured_bytes": 40 * GIB, "peak_predicted_bytes": 41 * GIB, "peak_least_bytes": 16 * GIB}


def verdicts(results, check, *, profile_name="local-cpu", **args) -> dict[str, Verdict]:
    """The verdicts of the two gates on a run with this memory_check in metrics.json."""
    folder = opened("run_fsdp_1node", results, profile_name, ["n0"])
    shutil.copyfile(FIXTURES / "training/run_fsdp_1node/run_args.json", folder / "run_args.json")
    for file, changes in (("metrics.json", {"memory_check": check}), ("run_args.json", args)):
        text = (FIXTURES / "training/run_fsdp_1node" / file).read_text()
        (folder / file).write_text(json.dumps(json.loads(text) | changes))
    opening.close_run(folder, 0)
    return {
        verdict.gate: verdict
        for verdict in judge.judge_folder(folder).verdicts.verdicts
        if verdict.gate.startswith("train.memory.")
    }


def test_states_as_predicted_pass_and_the_verdict_holds_both_numbers(tmp_path):
    by_gate = verdicts(tmp_path, HEALTHY)
    assert by_gate["train.memory.states"].outcome is Outcome.PASS
    assert "1.6 MiB on rank 0, predicted 1.6 MiB" in by_gate["train.memory.states"].observed
    assert "train.memory.peak" not in by_gate  # not applicable without a GPU


@pytest.mark.parametrize("factor", [0.5, 0.84, 1.16, 1.5, 2.0, 16.0])
def test_states_that_are_not_the_predicted_ones_fail(tmp_path, factor):
    check = HEALTHY | {"states_measured_bytes": int(factor * 1_708_544)}
    verdict = verdicts(tmp_path, check)["train.memory.states"]
    assert verdict.outcome is Outcome.FAIL
    assert "predicted 1.6 MiB" in (verdict.cause or "")


@pytest.mark.parametrize(
    ("changes", "args", "outcome"),
    [
        ({}, {}, Outcome.PASS),
        pytest.param({"peak_measured_bytes": 60 * GIB}, {}, Outcome.WARN, marks=shows_failing("train.memory.peak")),
        ({"peak_measured_bytes": 20 * GIB}, {}, Outcome.WARN),
        ({"peak_measured_bytes": 20 * GIB}, {"compile": True}, Outcome.PASS),  # fused kernels keep less
        ({"peak_measured_bytes": 60 * GIB}, {"compile": True}, Outcome.WARN),
        ({"peak_measured_bytes": 900 * 2**20, "peak_predicted_bytes": 81 * 2**20}, {}, Outcome.INCOMPLETE),
        (
            {"peak_measured_bytes": 4 * GIB, "peak_predicted_bytes": 81 * 2**20, "peak_least_bytes": 2**24},
            {},
            Outcome.WARN,
        ),
        ({"peak_measured_bytes": None}, {}, Outcome.INCOMPLETE),
        ({"states_measured_bytes": 2**40}, {}, Outcome.INCOMPLETE),  # judged after the states
        ({"peak_measured_bytes": 15 * GIB}, {}, Outcome.INCOMPLETE),  # less than the states that are held
        ({"peak_measured_bytes": 15 * GIB}, {"compile": True}, Outcome.INCOMPLETE),
        ({"peak_predicted_bytes": None, "reason": "a mixture of experts"}, {}, Outcome.INCOMPLETE),
    ],
)
def test_the_peak_on_a_gpu(tmp_path, changes, args, outcome):
    by_gate = verdicts(tmp_path, ON_GPU | changes, profile_name="generic", **args)
    assert by_gate["train.memory.peak"].outcome is outcome


@pytest.mark.parametrize("args", [{}, {"compile": True}, {"recipe": "fast"}])
@pytest.mark.parametrize("check", [{}, {"peak_predicted_bytes": int(1.1 * GIB)}])
def test_a_peak_of_nothing_is_not_a_pass(tmp_path, check, args):
    """It was, with fused kernels, and where the prediction was close to 1 GiB."""
    verdict = verdicts(tmp_path, ON_GPU | check | {"peak_measured_bytes": 0}, profile_name="generic", **args)
    assert verdict["train.memory.peak"].outcome is Outcome.INCOMPLETE
    assert "0 bytes" in (verdict["train.memory.peak"].cause or "")


def test_a_peak_that_cannot_be_and_one_that_is_not_predicted_say_why(tmp_path):
    less = verdicts(tmp_path / "a", ON_GPU | {"peak_measured_bytes": 15 * GIB}, profile_name="generic")
    assert "at least 16,384.0 MiB" in (less["train.memory.peak"].cause or "")
    check = ON_GPU | {"peak_predicted_bytes": None, "reason": "a mixture of experts"}
    unknown = verdicts(tmp_path / "b", check, profile_name="generic")
    assert unknown["train.memory.states"].outcome is Outcome.PASS
    assert "a mixture of experts" in (unknown["train.memory.peak"].cause or "")


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


@pytest.mark.filterwarnings("default")
def test_one_fake_rank_of_a_thousand_agrees_with_the_formulae(capsys):
    """The real Llama and the real fully_shard, here and now: 128 nodes of 8, HSDP."""
    debug._clear_sharding_prop_cache()
    assert predict.main(["--model", "tiny", "--strategy", "hsdp", "--nodes", "128", "--gpus-per-node", "8"]) == 0
    record = json.loads(capsys.readouterr().out)
    shape, job = models.load("tiny"), Job("hsdp", 128, 8, 128)
    assert sum(record["states_bytes"].values()) == pytest.approx(memory.states(shape, 8).total, rel=2e-3)
    assert record["peak_bytes"]["total"] == pytest.approx(memory.peak(shape, job).total - memory.WORKSPACE, rel=0.05)
    assert {
        (collective["operation"], collective["group_size"], collective["calls"], collective["bytes"])
        for collective in record["collectives"]
    } == {
        (collective.operation, collective.ranks, collective.calls, collective.size)
        for collective in traffic.collectives(shape, job)
    }
