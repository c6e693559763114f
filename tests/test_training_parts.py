"""Data, FLOPs, step-time reduction and the strategy check, each alone."""

import json
import math
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import torch
from bringup.kernel.plan import profile as profiles
from bringup.kernel.records import read_record
from bringup.training.formulae import flops, models, overlap, pace
from bringup.training.records import Checkpoint, Memory, RunArgs, Standstill, TrainMetrics
from loops import case_for_each, for_each
from programs import ROOT
from pydantic import TypeAdapter
from recipe import data, group, meter, results, strategy
from recipe import fast as recipes
from recipe.data import DataError
from transformers import AutoConfig, AutoModelForCausalLM

# torch and transformers warn about their own insides; what is tested here is ours
pytestmark = pytest.mark.filterwarnings("default")

MODELS = {"tiny": 213_568, "smollm3-3b": 3_075_098_624, "mistral-7b": 7_241_732_096}
MODELS |= {"llama3-8b": 8_030_261_248, "llama3-70b": 70_553_706_496}


def config_of(stem: str) -> Any:
    return AutoConfig.for_model(**json.loads((ROOT / "training" / "models" / f"{stem}.json").read_text()))


@for_each(*sorted(path.stem for path in (ROOT / "training/models").glob("*.json")))
def test_model_file_has_the_published_number_of_parameters(stem):
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of(stem))
    assert model.num_parameters() == MODELS[stem]


def test_blocks_are_compiled_only_where_something_small_is(monkeypatch):
    def needs_a_compiler(function: Any) -> Any:
        raise RuntimeError("No working C++ compiler found in torch._inductor.config.cpp.cxx: (None, 'g++')")

    assert (recipes.no_compiler() is None) == (" " not in sys.prefix)  # Inductor finds no headers in such a path
    monkeypatch.setattr(torch, "compile", needs_a_compiler)
    assert "cannot compile here: No working C++ compiler found" in (recipes.no_compiler() or "")


@pytest.mark.parametrize(("stem", "theta"), [("smollm3-3b", 5e6), ("mistral-7b", 1e4), ("llama3-8b", 5e5)])
def test_rotary_base_arrives_in_the_config(stem, theta):
    assert config_of(stem).rope_parameters["rope_theta"] == theta


@for_each(
    ("NVIDIA A100-SXM4-80GB", 312.0),
    ("NVIDIA H100 80GB HBM3", 989.4),
    ("NVIDIA H100 PCIe", 756.0),
    ("NVIDIA H100 NVL", 835.0),
    ("NVIDIA H200", 989.4),
    ("NVIDIA H200 NVL", 836.0),
    ("NVIDIA GH200 480GB", 989.4),
    ("NVIDIA B200", 2250.0),
    ("NVIDIA GB200", 2500.0),
)
def test_peak_is_that_of_the_card_and_not_of_its_namesake(name, tflops):
    peak = flops.peak_bf16_tflops(name)
    assert peak[0] == tflops
    assert "data sheet" in peak[1]


@case_for_each("NVIDIA L20", "NVIDIA A10G", "Tesla V100-SXM2-16GB", "NVIDIA H100 80GB HBM3 MIG 1g.10gb")
def test_unknown_card_has_no_peak_rather_than_a_wrong_one(name):
    assert flops.peak_bf16_tflops(name) is None
    efficiency = flops.efficiency(models.load("tiny"), 128, 1e5, name, "bfloat16")
    assert (efficiency.mfu, efficiency.mfu_reason) == (None, f"no peak is known for {name}")


def test_a_peak_that_a_profile_declares_itself_counts_for_an_unknown_card_and_a_known_one(tmp_path):
    assert flops.profile_of(tmp_path) is None
    head = "schema_version: 1\nname: ours\ndescription: ours\n"
    (tmp_path / "profile.yaml").write_text(head + "machine:\n  peak_bf16_tflops: {value: 61, source: our data sheet}\n")
    ours = flops.profile_of(tmp_path)
    for name in ("NVIDIA L20", "NVIDIA H100 80GB HBM3"):
        assert flops.peak_bf16_tflops(name, ours) == (61, "our data sheet")
    with_part = profiles.load("h100-8x400g")  # another card than that of the profile has its own peak
    assert flops.peak_bf16_tflops("NVIDIA L20", with_part) is None
    assert flops.peak_bf16_tflops("NVIDIA A100-SXM4-80GB", with_part)[0] == 312


def test_mfu_follows_from_its_own_fields_and_is_not_computed_in_float32_nor_on_a_cpu():
    of_llama = flops.efficiency(models.load("llama3-8b"), 8192, 8000.0, "NVIDIA H100 80GB HBM3", "bfloat16")
    assert (of_llama.mfu, of_llama.mfu_reason) == (pytest.approx(57.91e9 * 8000 / 989.4e12, rel=1e-3), None)  # 0.468
    assert "bfloat16" in (flops.efficiency(models.load("tiny"), 128, 1.0, "NVIDIA H200", "float32").mfu_reason or "")
    assert flops.efficiency(models.load("tiny"), 128, 1.0, None, "float32").mfu_reason == "no peak is known for cpu"


def of_texts(folder: Path, texts: Iterable[str], rows: int, length: int) -> Any:
    data.make_rows(folder / "rows", iter(texts), data.encode_bytes, rows, length)
    return data.Rows(folder / "rows", length)


def made(folder: Path, *, rows: int, seed: int = 42) -> Any:
    folder.mkdir()
    return of_texts(folder, data.open_source("generated", seed), rows, 32)


def test_generated_rows_depend_on_the_seed_alone(tmp_path):
    few, many = made(tmp_path / "few", rows=3), made(tmp_path / "many", rows=300)
    assert few[2]["input_ids"].tolist() == many[2]["input_ids"].tolist()
    assert many[2]["row"] == 2
    assert few[1]["input_ids"].tolist() != few[2]["input_ids"].tolist()
    again, other = made(tmp_path / "again", rows=3), made(tmp_path / "other", rows=3, seed=43)
    assert data.fingerprint(few) == data.fingerprint(again) != data.fingerprint(other)
    assert int(many.ids.max()) < data.FIRST_BYTE + 256


def test_packing_fills_every_row_and_keeps_the_order(tmp_path):
    rows = of_texts(tmp_path, ["ab", "c", "def"], rows=2, length=4)
    a, b, c, d, e, f = (3 + byte for byte in b"abcdef")
    assert rows.ids.tolist() == [[a, b, 1, c], [1, d, e, f]]
    assert rows[0]["labels"].tolist() == rows[0]["input_ids"].tolist()


def test_a_dataset_that_is_too_small_and_a_folder_that_cannot_hold_the_rows_are_one_line(tmp_path):
    with pytest.raises(DataError, match="fills 1 rows of 4 tokens, the run needs 2"):
        of_texts(tmp_path, ["abcd"], rows=2, length=4)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot hold the tokenised rows \(1 x 4 x 4 bytes\): .*; set TMPDIR"):
        of_texts(tmp_path / "file", ["abcd"], rows=1, length=4)


ALPACA = [{"instruction": "Add.", "input": "1 1", "output": "2"}]
ALPACA += [{"instruction": "Stop.", "input": "", "output": "Yes."}]


def hub_folder(folder: Path, rows: list[dict[str, str]]) -> str:
    """A dataset as `hf download` leaves it: a folder with a file per split."""
    folder.mkdir()
    (folder / "train.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return str(folder)


def test_alpaca_format_and_plain_text_are_read_and_others_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    alpaca = list(data.open_source(hub_folder(tmp_path / "alpaca", ALPACA), 0))
    assert alpaca == ["Add.\n\n1 1\n\n2", "Stop.\n\nYes."]
    assert list(data.open_source(hub_folder(tmp_path / "plain", [{"text": "a b"}]), 0)) == ["a b"]
    with pytest.raises(data.DataError, match=r"columns \['a'\], expected text, or instruction and output"):
        data.open_source(hub_folder(tmp_path / "neither", [{"a": "b"}]), 0)


@case_for_each(
    ('{"text": "a"}\n{"text": null}\n', "row 2 of the dataset has None in column text, expected a text"),
    ('{"text": 5}\n', "row 1 of the dataset has 5 in column text"),
    ('{"instruction": null, "output": "b"}\n', "row 1 of the dataset has None in column instruction"),
    ('{"text": "a"}\n{"text":\n', "cannot be loaded: JSON parse error: .*; look at what lies there"),
    ("", "cannot be loaded: it is empty; look at what lies there"),
)
def test_a_file_that_is_wrong_is_one_line_that_says_where(tmp_path, monkeypatch, lines, says):
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    (tmp_path / "texts.jsonl").write_text(lines)
    with pytest.raises(data.DataError, match=says) as error:
        list(data.open_source(str(tmp_path / "texts.jsonl"), 0))
    assert "\n" not in str(error.value)
    assert "hf download" not in str(error.value)


def test_a_dataset_that_is_not_there_is_one_line_that_says_what_to_do(tmp_path):
    with pytest.raises(data.DataError) as error:
        data.open_source(str(tmp_path / "nothing"), 0)
    assert str(error.value).startswith(f"dataset {tmp_path}/nothing cannot be loaded: Couldn't find")
    assert "hf download --repo-type dataset" in str(error.value)
    assert "\n" not in str(error.value)


@for_each(
    # each rank took 3 s for two steps: one was late in the first step, the other in the second
    ([[9.0, 1.0, 2.0], [9.0, 2.0, 1.0]], 1, 150, 100.0, [2.0, 1.0]),
    # the rank that stood still is late in its step; the others are late in the step after it, or in the same
    ([[1.0, 1.0, 6.0, 1.0], [1.0, 1.0, 1.0, 6.0], [1.0, 1.0, 6.0, 1.0]], 0, 90, 40.0, [1.0, 1.0, 6.0, 1.0]),
    # a rank that ends late in the last step makes the window longer
    ([[1.0] * 4, [1.0, 1.0, 1.0, 3.0]], 0, 90, 60.0, [1.0, 1.0, 1.0, 3.0]),
)
def test_what_ranks_wait_in_a_step_is_counted_once(ranks, warmup, tokens, tokens_per_s, steps_s):
    steady = pace.steady_window(ranks, ["n0"] * len(ranks), warmup, tokens)
    assert (steady.tokens_per_s, steady.steps_s) == (tokens_per_s, steps_s)


def test_percentiles_of_the_steady_window_are_over_the_steps_of_all_ranks_and_one_without_a_step_is_an_error():
    of_all = pace.steady_window([[9.0, 1.0, 1.0, 1.0], [9.0, 1.5, 1.5, 0.25]], ["n0", "n1"], 1, 100).step_time_s
    assert (of_all.p50, of_all.p95, of_all.max, of_all.window_steps) == (1.0, 1.5, 1.5, 3)
    assert (of_all.slowest_rank, of_all.slowest_rank_node) == (1, "n1")
    with pytest.raises(ValueError, match="no step is left"):
        pace.steady_window([[1.0]], ["n0"], warmup_steps=1, tokens_per_step=1)


def memory(host: float, *of_device: float) -> Any:
    """Of one rank: GiB resident, allocated, reserved, of the card; allocation retries. Active: between the two."""
    allocated, reserved, total, retries = of_device or (None,) * 4
    names = {"device_allocated_gib": allocated, "device_reserved_gib": reserved, "device_total_gib": total}
    names["device_active_gib"] = None if allocated is None else allocated + 0.5
    return Memory(host_rss_gib=host, allocation_retries=retries, **names)  # type: ignore[arg-type]


def test_what_ranks_tell_each_other_comes_back_as_it_was():
    """As JSON: the kind says what JSON has no word for."""
    rank = results.RankResult(
        step_times_s=[0.1, 1 / 3],
        own_times_s={"fetch": [0.0, math.inf]},
        standstill=Standstill(seconds=0),
        memory=memory(1.0),
        environment={"nics": ["eth0"], "gpus": []},
        sent={"eth0": 5},
        states_bytes=2**62,
        startup_s=(1.0, 2.0, 3.0, 4.0, 5.0),
        checksum=1e-300,
        steps_unix_s=[1.7e9],
        rows=[1, 2],
    )
    for value, kind in [
        (rank, results.RankResult),
        (overlap.Profiled(1.0, 0.1, 0.1, {"all_reduce": 0.1}, {"all_reduce": 2.0}), overlap.Profiled | str),
        ("torch.profiler failed", overlap.Profiled | str),
        ((1, 2**40, None, (7, "MemAvailable")), tuple[int, int, int | None, tuple[int, str]]),
        ((1.5, None), tuple[float | None, str | None]),
        (("n0", {0, 2}), tuple[str, set[int]]),
        (((0, 1), 2**64 - 1), tuple[tuple[int, ...], int]),
        ({3: "rank-3.pt"}, dict[int, str]),
        (([(Path("/a/step-1"), None, "damaged")], True), tuple[list[tuple[Path, Checkpoint | None, str]], bool]),
        (Path("/a/b.npy"), Path | None),
        ([1 / 3, -math.inf], Any),
    ]:
        assert TypeAdapter(kind).validate_json(group._json(value)) == value
    assert math.isnan(TypeAdapter(Any).validate_json(group._json(math.nan)))


def test_memory_is_the_most_of_all_ranks():
    on_gpu = meter.memory([memory(1.0, 9.0, 10.0, 80.0, 1), memory(2.0, 8.0, 12.0, 40.0, 2)])
    assert (on_gpu.device_allocated_gib, on_gpu.device_active_gib, on_gpu.device_reserved_gib) == (9.0, 9.5, 12.0)
    assert meter.memory([memory(1.0), memory(2.0, 8.0, 12.0, 40.0, 2)]).device_active_gib is None
    assert (on_gpu.host_rss_gib, on_gpu.device_total_gib, on_gpu.allocation_retries) == (2.0, 40.0, 3)


@for_each(
    ("", ["plain"], None, 1, "single"),
    ("", ["plain"], None, 2, "unknown"),
    ("DataParallel", ["plain"], None, 1, "unknown"),
    ("DistributedDataParallel", ["plain"], None, 2, "ddp"),
    ("", ["(Shard(dim=0),)"], [[0, 1]], 2, "fsdp"),
    ("", ["(Shard(dim=0),)"], [[0, 1]], 4, "unknown"),
    ("", ["(Shard(dim=0),)", "plain"], [[0, 1]], 2, "unknown"),
    ("", ["(Replicate(), Shard(dim=0))"], [[0, 1], [2, 3]], 4, "hsdp"),
    ("", ["(Replicate(), Shard(dim=0))"], [[0], [1]], 2, "unknown"),
)
def test_kind_is_read_from_wrapper_placements_and_mesh(wrapper, placements, mesh, world, kind):
    assert strategy.kind_of(wrapper, placements, mesh, world) == kind


@case_for_each(
    (("ddp",), ["a"], "expected ddp on 2 or more ranks, observed single (1 rank"),
    (("fsdp", 2, None), ["a", "a"], "expected fsdp across 2 or more hosts, observed 2 ranks on 1 host (a)"),
    (("ddp",), ["a", "b"], "expected ddp on 1 host, observed 2 ranks on 2 hosts (a, b)"),
    (("single",), ["a", "a"], "expected single on one rank, observed 2 ranks"),
)
def test_wrong_number_of_ranks_or_hosts_for_the_name_is_refused(expected, hosts, message):
    with pytest.raises(strategy.Refused) as refused:
        strategy.require_places(strategy.Expected(*expected), hosts)
    assert message in str(refused.value)


HSDP = ROOT / "tests/fixtures/training/run_hsdp_2node"
EXPECTED = strategy.Expected("hsdp", 2, None)
ON_FOUR = {"mesh": [[0, 1, 2, 3], [4, 5, 6, 7]], "hosts": list("aabbccdd"), "devices": ["cpu"] * 8}
IN_FOURS = {"shard_size": 4, "nodes": 4, "ranks_per_node": 2, "world_size": 8}


def seen(**different: Any) -> Any:
    return read_record(HSDP / "metrics.json", TrainMetrics).observed.model_copy(update=different)


def asked(**changes: Any) -> Any:
    return read_record(HSDP / "run_args.json", RunArgs).model_copy(update=changes)


APART, VARIANT = (("train.shard.inside_node", 2, "count"),), (("train.variant", 1, "count"),)


@for_each(
    ({"hosts": list("abab")}, {}, "observed group [0, 1] on a, b", APART),
    (ON_FOUR | {"hosts": list("abcabcdd")}, IN_FOURS, "inside 2 hosts, observed group [0, 1, 2, 3] on a, b, c", APART),
    (ON_FOUR | {"mesh": [[0, 1], [2, 3], [4, 5], [6, 7]]}, IN_FOURS, "shard_size: asked 4, observed 2", VARIANT),
)
def test_a_shard_group_that_leaves_its_hosts_or_has_another_size_is_refused(different, changes, says, shows):
    strategy.require(seen(), EXPECTED, asked())
    strategy.require(seen(**ON_FOUR), EXPECTED, asked(**IN_FOURS))
    with pytest.raises(strategy.Refused) as refused:
        strategy.require(seen(**different), EXPECTED, asked(**changes))
    assert says in str(refused.value)
    assert refused.value.seen == shows


@for_each(("aabb", None, 2), ("aaaabbbb", None, 4), ("aaaabbbb", 2, 2), ("aabbccdd", 4, 4), ("abcd", 2, 2))
def test_a_shard_group_is_a_host_or_what_was_requested(hosts, wanted, size):
    assert strategy.shard_group(list(hosts), wanted) == size


@for_each(
    ("ab", None, "the same number of ranks, 2 or more, on each host"),
    ("aab", None, "the same number of ranks, 2 or more, on each host"),
    ("aab", 3, "the same number of ranks, 2 or more, on each host"),
    ("aabb", 4, "--shard-size 4: expected a part of a host or whole hosts, and 2 groups or more, observed 2 host"),
    ("aaaabbbbcccc", 6, "observed 3 hosts of 4 ranks: give 2 or 4"),
    ("aaaabbbbcccc", 5, "give 2 or 4"),
    ("ab", 2, "give more hosts"),
)
def test_a_shard_group_that_would_not_suit_the_hosts_is_refused(hosts, wanted, says):
    with pytest.raises(strategy.Refused) as refused:
        strategy.shard_group(list(hosts), wanted)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


@for_each(
    ({"reshard_after_forward": False}, "reshard_after_forward: asked True, observed False"),
    ({"reshard_after_forward": None}, "reshard_after_forward: asked True, observed None"),
    ({"master_dtype": "bfloat16"}, "master_dtype: asked float32, observed bfloat16"),
    ({"compute_dtype": "bfloat16"}, "compute_dtype: asked float32, observed bfloat16"),
    ({"reduce_dtype": "bfloat16"}, "reduce_dtype: asked float32, observed bfloat16"),
    ({"loss_dtype": "bfloat16"}, "loss_dtype: asked float32, observed bfloat16"),
    ({"recomputed_layers": 3}, "recomputed layers of 4: asked 0, observed 3"),
    ({"sync_each_batch": True}, "sync_each_batch: asked False, observed True"),
)
def test_another_variant_than_asked_for_is_refused(different, says):
    with pytest.raises(strategy.Refused, match=says) as refused:
        strategy.require(seen(**different), EXPECTED, asked())
    assert refused.value.seen == VARIANT


def test_before_the_first_step_only_structure_is_held_against_the_arguments():
    unknown = {"compute_dtype": None, "loss_dtype": None, "recomputed_layers": None}
    wanted = asked(activation_checkpointing=True)
    assert seen(**unknown).differs_from(wanted) == []
    assert seen(recomputed_layers=4).differs_from(wanted) == []
    assert seen().differs_from(wanted) == ["recomputed layers of 4: asked 4, observed 0"]
    in_each = asked(sync_each_batch=True)
    assert seen(**unknown).differs_from(in_each) == []
    assert seen().differs_from(in_each) == ["sync_each_batch: asked True, observed None"]
    assert seen(sync_each_batch=True).differs_from(in_each) == []
