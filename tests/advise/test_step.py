"""The predicted time of a step beside the measured one: what is known, and why something is not."""

import json
from pathlib import Path

import pytest
from bringup.kernel.errors import RecordError
from bringup.kernel.plan import profile as profiles
from bringup.kernel.records import Observation, read_record
from bringup.report.training import lines
from bringup.training.advise import answer, bandwidth
from bringup.training.formulae import models
from bringup.training.records import RunArgs, TrainMetrics
from factory import records_in
from trained_runs import RECORDS

H100 = "NVIDIA H100 80GB HBM3"
PROFILE = profiles.load("h100-8x400g")
SHAPE = models.load("llama3-8b")


def args() -> RunArgs:
    asked = {"nodes": 2, "ranks_per_node": 8, "world_size": 16, "compute_dtype": "bfloat16", "device": "cuda"}
    asked |= {"model": "llama3-8b", "sequence_length": 8192, "per_device_batch": 1, "strategy": "fsdp"}
    return read_record(RECORDS / "run_fsdp_2node/run_args.json", RunArgs).model_copy(update=asked)


def kept_reference(folder: Path, text: str) -> Path:
    (folder / "raw").mkdir()
    (folder / "raw/reference.metrics.json").write_text(text)
    return folder


def kept(folder: Path) -> TrainMetrics | RecordError | None:
    return records_in(folder).reference_metrics


def predicted_of(reference, gpu=H100, curve=None) -> answer.Times:
    return lines.predicted_step(reference, PROFILE, args(), gpu, curve, SHAPE)


def test_a_step_lasts_as_long_as_its_longer_part_or_as_both(tmp_path):
    predicted = predicted_of(kept(tmp_path))
    assert predicted.unknown == []
    least, most = predicted.compute
    assert predicted.step == (max(least, predicted.communication), most + predicted.communication)


def test_the_mfu_of_the_one_gpu_run_counts_more_than_the_assumed_one(tmp_path):
    assumed = predicted_of(kept(tmp_path)).compute
    reference = json.loads((RECORDS / "run_1gpu/metrics.json").read_text()) | {"mfu": 0.2, "mfu_reason": None}
    folder = kept_reference(tmp_path, json.dumps(reference))
    measured = predicted_of(kept(folder)).compute
    assert measured is not None and measured[0] == measured[1] > assumed[1]  # 0.2 is below all that was published
    recomputed = lines.predicted_step(
        kept(folder), PROFILE, args().model_copy(update={"activation_checkpointing": True}), H100, None, SHAPE
    )
    assert recomputed.compute == measured  # the one-GPU run recomputed too


def test_a_measured_curve_counts_more_than_the_promise_of_the_profile(tmp_path):
    how = {"subject": "2-nodes", "value": 1.0, "unit": "GB/s", "evidence": "raw/x:1"}
    names = ("all_gather", "reduce_scatter")
    curve = [Observation(quantity=f"nccl.{name}.busbw@1MiB", **how) for name in names]
    promised = predicted_of(kept(tmp_path)).communication
    measured = predicted_of(kept(tmp_path), curve=bandwidth.Measured([("run-7", curve, [])]))
    assert measured.communication > 10 * promised


@pytest.mark.parametrize("gpu", [None, "NVIDIA Unheard-of"])
def test_without_a_known_peak_the_prediction_is_incomplete_and_says_why(tmp_path, gpu):
    predicted = predicted_of(kept(tmp_path), gpu)
    assert (predicted.compute, predicted.step) == (None, None)
    assert predicted.communication is not None
    assert predicted.unknown == [f"compute time: no peak is known for {gpu or 'cpu'}"]


def test_a_reference_that_cannot_be_read_is_the_reason_and_no_error(tmp_path):
    predicted = predicted_of(kept(kept_reference(tmp_path, "{")))
    assert predicted.step is None
    assert "reference.metrics.json" in str(predicted.unknown)
