"""The part of a step that is communication: from the profiler's events to seconds, and in real trainings on gloo."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
from bringup.kernel.records import read_record
from bringup.training.formulae import overlap
from bringup.training.records import Communication, RunArgs
from loops import case_for_each, for_each
from real_trainings import Finished, changed, one_node
from recipe import communication
from tiers import first, in_test_all
from torch.autograd import DeviceType
from trained_runs import RECORDS

CPU, GPU = DeviceType.CPU, DeviceType.CUDA


def event(name: str, begin: float, end: float, device: DeviceType = CPU) -> Any:
    return SimpleNamespace(name=name, time_range=SimpleNamespace(start=begin, end=end), device_type=device)


def read(events: list[Any], steps: int, seconds: float, cuda: bool) -> overlap.Profiled:
    return overlap.read(communication._events(events, cuda), steps, seconds, cuda)


@for_each(
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_reduce"),
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "all_gather"),
    ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "reduce_scatter"),
    ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)", "all_reduce"),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "other"),
    ("gloo:all_gather", "all_gather"),
    ("gloo:barrier", "other"),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_tn", None),
    ("aten::mm", None),
    ("FSDP::all_gather (model.layers.0)", None),
)
def test_a_collective_is_known_by_the_name_of_its_kernel_or_range(name, kind):
    assert overlap.kind_of(name) == kind


def test_on_a_gpu_what_no_other_kernel_overlaps_is_exposed():
    events = [
        event("ncclDevKernel_AllGather_RING_LL()", 0, 100, GPU),
        event("gemm", 60, 200, GPU),  # hides 40 of it
        event("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL()", 150, 300, GPU),  # 50 are hidden
        event("cudaLaunchKernel", 0, 300),  # of the host: nothing is computed by it
        event("aten::mm", 0, 300),
    ]
    profiled = read(events, steps=2, seconds=800e-6, cuda=True)
    assert profiled.step_s == pytest.approx(400e-6)
    assert profiled.total_s == pytest.approx(125e-6)
    assert profiled.exposed_s == pytest.approx((60 + 100) / 2 * 1e-6)
    assert profiled.seconds == pytest.approx({"all_gather": 50e-6, "reduce_scatter": 75e-6})
    assert profiled.calls == {"all_gather": 0.5, "reduce_scatter": 0.5}


def test_collectives_at_the_same_time_count_once():
    events = [event("gloo:all_reduce", 0, 100), event("gloo:all_reduce", 50, 150), event("aten::add", 140, 150)]
    profiled = read(events, steps=1, seconds=1e-3, cuda=False)
    assert (profiled.total_s, profiled.exposed_s) == (pytest.approx(150e-6), pytest.approx(140e-6))


def test_gloo_names_a_reduce_scatter_all_reduce_and_the_call_says_what_it_is():
    events = [
        event("c10d::_reduce_scatter_base_", 0, 10),
        event("gloo:all_reduce", 20, 80),
        event("c10d::allreduce_", 100, 110),
        event("gloo:all_reduce", 105, 115),
    ]
    profiled = read(events, steps=1, seconds=1e-3, cuda=False)
    assert profiled.seconds == pytest.approx({"reduce_scatter": 60e-6, "all_reduce": 10e-6})


def test_a_profiler_that_saw_no_collective_gives_a_reason_and_no_share_of_zero():
    args = read_record(RECORDS / "run_ddp_1node/run_args.json", RunArgs).model_copy(update={"profiled_steps": 3})
    busy = read([event("gloo:all_reduce", 0, 100)], steps=3, seconds=1e-3, cuda=False)
    silent = read([event("aten::mm", 0, 100)], steps=3, seconds=1e-3, cuda=False)
    why = "torch.profiler saw no collective on 1 of 2 ranks, first rank 1"
    assert overlap.of_all([busy, silent], 3, args, None) == (None, why)


@pytest.mark.parametrize("fails", ["prepare_trace", "start_trace", "stop_trace"])
def test_a_profiler_that_fails_is_a_reason_and_every_step_is_made(monkeypatch, fails):
    """The other ranks are in these steps too, and the training is done."""

    class Broken:
        def __init__(self, **options: object) -> None: ...

        def prepare_trace(self) -> None: ...

        def start_trace(self) -> None: ...

        def stop_trace(self) -> None: ...

    def fail(self: object) -> None:
        raise RuntimeError("CUPTI_ERROR_INSUFFICIENT_PRIVILEGES")

    monkeypatch.setattr(Broken, fails, fail)
    monkeypatch.setattr(communication, "profile", Broken)
    made: list[int] = []
    profiled = communication._profiled(lambda: made.append(1), steps=3)
    assert profiled == "RuntimeError: CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
    assert len(made) == 4


def test_a_torch_without_cupti_is_named_in_one_line_and_every_step_is_made(monkeypatch):
    """The CPU build stands in for it: it records nothing of a GPU."""
    monkeypatch.setattr(communication.group, "CUDA", True)
    monkeypatch.setattr(communication.group, "wait_for_device", lambda: None)
    made: list[int] = []
    profiled = communication._profiled(lambda: made.append(1), steps=3)
    assert profiled == "CUPTI is not available here, so this torch records no kernel of a GPU"
    assert len(made) == 4


def require_measured(run: Finished, ranks: int, calls: dict[str, int]) -> Communication:
    """Seconds that can be: no rank communicated longer than it trained, and each collective was called as planned."""
    assert run.codes == [0], run.output
    metrics = run.metrics()
    communication_value = metrics.communication
    assert communication_value is not None, metrics.communication_reason
    assert len(communication_value.total_s) == len(communication_value.exposed_s) == ranks
    of_ranks = zip(communication_value.exposed_s, communication_value.total_s, strict=True)
    assert all(0 < exposed <= total <= communication_value.step_s * 2 for exposed, total in of_ranks)
    assert 0 < metrics.communication_share < 1
    assert {each.operation: each.calls_predicted for each in communication_value.collectives} == calls
    assert {each.operation: each.calls for each in communication_value.collectives} == calls
    for each in communication_value.collectives:
        assert each.busbw_gb_per_s == pytest.approx(each.sent_bytes / each.seconds / 1e9)
    return communication_value


@case_for_each(*first([("ddp", {"all_reduce": 1}), ("fsdp", {"all_gather": 11, "reduce_scatter": 6})]))
def test_the_communication_of_a_step_is_measured_on_gloo(tmp_path, program, calls):
    """On four ranks; the next test has two."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    run = one_node(tmp_path / "run", f"train_{program}_single_node", "--no-rehearse-resume", launcher=launcher)
    require_measured(run, 4, calls)
    assert "USDT" not in run.output  # of the profiler's library, a line per rank


@in_test_all
@case_for_each(
    ("ddp", {"all_reduce": 1}, {"all_reduce": 2}),
    ("fsdp", {"all_gather": 22, "reduce_scatter": 6}, {"all_gather": 22, "reduce_scatter": 12}),
)
def test_gradients_are_reduced_in_every_micro_step_only_when_that_was_requested(tmp_path, program, kept, each):
    options = ("--gradient-accumulation", "2", "--no-rehearse-resume")
    once = one_node(tmp_path / "once", f"train_{program}_single_node", *options)
    always = one_node(tmp_path / "always", f"train_{program}_single_node", *options, "--sync-each-batch")
    require_measured(once, 2, kept)
    require_measured(always, 2, each)
    assert (once.metrics().observed.sync_each_batch, always.metrics().observed.sync_each_batch) == (False, True)
    assert (once.args().sync_each_batch, always.args().sync_each_batch) == (False, True)
    assert always.metrics().loss == pytest.approx(once.metrics().loss, abs=1e-5)
    assert always.metrics().grad_norm == pytest.approx(once.metrics().grad_norm, rel=1e-5)


@in_test_all
def test_profiled_steps_change_nothing_that_is_recorded_of_the_training(tmp_path):
    options = ("--no-rehearse-resume", "--profiled-steps")
    with_them = one_node(tmp_path / "profiled", "train_ddp_single_node", *options, "1")
    without = one_node(tmp_path / "plain", "train_ddp_single_node", *options, "0")
    ours, theirs = with_them.metrics(), without.metrics()
    for name in ("loss", "grad_norm", "parameter_checksums", "sample_count", "sample_distinct", "steps_done"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert len(ours.steps_unix_s or []) == len(theirs.steps_unix_s or []) == 6
    assert ours.communication is not None
    assert (theirs.communication, theirs.communication_reason) == (None, "no step was profiled (--profiled-steps 0)")


# as on a GPU that is almost full: the profiler's buffers take what was left
NO_ROOM_AFTERWARDS = """
import sys
import time
import torch
from transformers import Trainer

step = Trainer.training_step

def slowly(write):
    def written(*args, **how):
        time.sleep(2)  # as on a busy filesystem: another rank may fail meanwhile
        write(*args, **how)
    return written

def training_step(self, *args):
    if self.state.global_step == self.args.max_steps:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
    if self.state.global_step == 0:
        sys.modules["recipe.results"].write = slowly(sys.modules["recipe.results"].write)
    return step(self, *args)

Trainer.training_step = training_step
"""


def test_a_training_that_is_done_has_its_record_when_a_profiled_step_fails(tmp_path, monkeypatch):
    changed(NO_ROOM_AFTERWARDS, tmp_path, monkeypatch)
    run = one_node(tmp_path / "run", "train_ddp_single_node")
    assert run.codes == [1], run.output  # it is a fault all the same, and the rank names it
    # the first ends the other
    errors = [run.facts(rank).get("train.rank.error", {}).get("value", "") for rank in (0, 1)]
    assert any("OutOfMemoryError: CUDA out of memory" in error for error in errors), (errors, run.output)
    metrics = run.metrics()
    assert metrics.steps_done == len(metrics.loss) == 6
    assert metrics.communication is None
    why = "the steps that are profiled after the training (--profiled-steps) did not end"
    assert metrics.communication_reason == why
