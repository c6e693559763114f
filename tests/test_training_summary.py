"""The head of metrics.json: numbers of its own fields, first in the file, beside the names of older results."""

import json
from pathlib import Path

import pytest
from bringup.kernel.records import read_record, write_record
from bringup.kernel.records.base import lists_on_lines
from bringup.kernel.results import METRICS, RUN, RUN_ARGS
from bringup.run import open as opening
from bringup.training import records as training_records
from bringup.training.records import RunArgs, TrainMetrics, scaling_against, summary_of
from factory import a_run
from loops import case_for_each
from trained_runs import RECORDS, STEMS

OLDER = [
    "wall_time_s", "approx_tokens_per_rank", "approx_tokens_per_s_per_rank", "world_size", "gpu0", "torch", "model",
    "dataset", "fsdp", "bf16",
]  # fmt: skip


def records(stem: str) -> tuple[RunArgs, TrainMetrics]:
    folder = RECORDS / stem
    return read_record(folder / "run_args.json", RunArgs), read_record(folder / "metrics.json", TrainMetrics)


def written(stem: str, target: Path) -> str:
    """metrics.json of this training with its head."""
    args, metrics = records(stem)
    scaled = scaling_against(args, metrics, records("run_1gpu"))
    write_record(target, metrics.model_copy(update={"summary": summary_of(args, metrics, scaled)}))
    return target.read_text()


@pytest.mark.parametrize("stem", STEMS)
def test_the_file_begins_with_what_people_compare_then_the_ten_older_names(tmp_path, stem):
    text = written(stem, tmp_path / "metrics.json")
    assert list(json.loads(text))[:12] == ["schema_version", "summary", *OLDER]
    head = text.splitlines()[:24]
    for name in ("tokens_per_s", "tokens_per_s_per_gpu", "mfu", "step_s_p50", "peak_memory_gib", "loss_last"):
        assert any(f'"{name}": ' in line for line in head), name


@pytest.mark.parametrize("stem", STEMS)
def test_each_number_is_that_of_its_field(tmp_path, stem):
    shown = json.loads(written(stem, tmp_path / "metrics.json"))
    head, args = shown["summary"], records(stem)[0]
    assert (head["strategy"], head["recipe"], head["device"]) == (args.strategy, args.recipe, "cpu")
    assert (head["ranks"], head["nodes"]) == (args.world_size, args.nodes)
    assert head["tokens_per_s"] == shown["tokens_per_s"]
    assert head["tokens_per_s_per_gpu"] == shown["tokens_per_s_per_rank"]
    assert (head["step_s_p50"], head["step_s_p95"]) == (shown["step_time_s"]["p50"], shown["step_time_s"]["p95"])
    assert (head["peak_memory_gib"], head["peak_memory_of"]) == (shown["memory"]["host_rss_gib"], "host")
    assert (head["mfu"], head["mfu_reason"]) == (None, "no peak is known for cpu")
    assert head["communication_share"] == shown["communication_share"]
    assert (head["loss_first"], head["loss_last"]) == (shown["loss"][0], shown["loss"][-1])


def test_on_a_gpu_its_reserved_memory_counts():
    args, metrics = records("run_fsdp_1node")
    memory = metrics.memory.model_copy(update={"device_allocated_gib": 20.0, "device_reserved_gib": 22.0})
    head = summary_of(args, metrics.model_copy(update={"memory": memory, "gpu0": "H100"}), (None, "x"))
    assert (head.peak_memory_gib, head.peak_memory_of, head.device) == (22.0, "device", "H100")


def test_scaling_is_against_the_run_on_one_gpu_or_it_says_why_not():
    single, (args, metrics) = records("run_1gpu"), records("run_ddp_1node")
    known, why = scaling_against(args, metrics, single)
    assert known == metrics.tokens_per_s_per_rank / single[1].tokens_per_s_per_rank
    assert why is None
    assert scaling_against(*single, single)[1] == "one rank: others are compared with it"
    assert scaling_against(args, metrics, None) == (None, "no run on one GPU was kept with this run")
    other = (single[0].model_copy(update={"seed": 7}), single[1])
    assert "seed 7 vs" in str(scaling_against(args, metrics, other)[1])
    assert "it had 2 ranks" in str(scaling_against(args, metrics, (args, metrics))[1])


def test_a_list_takes_one_line_and_no_value_changes(tmp_path):
    text = written("run_hsdp_2node", tmp_path / "metrics.json")
    assert " [0, 1],\n" in text  # a row of the mesh
    assert len(text.splitlines()) < 0.75 * len(json.dumps(json.loads(text), indent=1).splitlines())
    assert read_record(tmp_path / "metrics.json", TrainMetrics).loss == records("run_hsdp_2node")[1].loss


@case_for_each(
    {"a": [], "b": [1], "c": {"d": [None, True, "x"]}},
    {"brackets in words": ["[", "]", "a, [b", "{", '"'], "lines": ["a\n[", "]\n"]},
    {"deep": [[[1, 2], [3]], [{"x": [4, 5]}]], "long": [round(0.1 * n, 1) for n in range(300)]},
    ["word " * 40, "word " * 40],
)
def test_what_was_laid_out_is_read_as_it_was(value):
    shown = lists_on_lines(json.dumps(value, indent=1))
    assert json.loads(shown) == value
    assert len(shown.splitlines()) <= len(json.dumps(value, indent=1).splitlines())


def test_the_scaling_is_against_the_run_that_is_beside_it_when_it_is_closed(tmp_path):
    """The newest run on one GPU had another seed. At the end an older one is comparable, and takes its place."""
    single, run = records("run_1gpu"), tmp_path / "run_ddp_1node-now"
    odd = (single[0].model_copy(update={"seed": 7}), single[1])
    places = {"run_1gpu-1": (single, METRICS, RUN_ARGS), "run_1gpu-2": (odd, METRICS, RUN_ARGS)}
    places[run.name] = (odd, training_records.REFERENCE_METRICS, training_records.REFERENCE_ARGS)
    (run / "raw").mkdir(parents=True)
    for folder, ((args, metrics), metrics_name, args_name) in places.items():
        (tmp_path / folder).mkdir(exist_ok=True)
        write_record(tmp_path / folder / args_name, args)
        write_record(tmp_path / folder / metrics_name, metrics)
    args, metrics = records("run_ddp_1node")
    stale = metrics.model_copy(update={"summary": summary_of(args, metrics, scaling_against(args, metrics, odd))})
    assert stale.summary is not None and stale.summary.scaling is None
    write_record(run / RUN, a_run("run_ddp_1node", ["n0"]))
    write_record(run / RUN_ARGS, args)
    write_record(run / METRICS, stale)
    opening._prefer_a_comparable_reference(run)
    renewed = read_record(run / METRICS, TrainMetrics)
    assert (renewed.summary.scaling, renewed.summary.scaling_reason) == scaling_against(args, metrics, single)
    assert renewed.summary.scaling is not None
    assert renewed.model_copy(update={"summary": None}) == metrics.model_copy(update={"summary": None})
