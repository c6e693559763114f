"""Data, FLOPs, step-time reduction and the strategy check, each alone."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "training" / "src"))
sys.path.append(str(ROOT / "infrastructure-validation" / "probes"))

# torch and transformers warn about their own insides; what is tested here is ours
pytestmark = pytest.mark.filterwarnings("default")

MODELS = {"tiny": 213_568, "smollm3-3b": 3_075_098_624, "mistral-7b": 7_241_732_096, "llama3-8b": 8_030_261_248}


def config_of(stem: str) -> Any:
    from transformers import AutoConfig

    return AutoConfig.for_model(**json.loads((ROOT / "training" / "models" / f"{stem}.json").read_text()))


@pytest.mark.parametrize("stem", MODELS)
def test_model_file_has_the_published_number_of_parameters(stem: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config_of(stem))
    assert model.num_parameters() == MODELS[stem]


def test_every_model_file_is_tested() -> None:
    assert {path.stem for path in (ROOT / "training" / "models").glob("*.json")} == set(MODELS)


@pytest.mark.parametrize(("stem", "theta"), [("smollm3-3b", 5e6), ("mistral-7b", 1e4), ("llama3-8b", 5e5)])
def test_rotary_base_arrives_in_the_config(stem: str, theta: float) -> None:
    assert config_of(stem).rope_parameters["rope_theta"] == theta


def test_flops_per_token_equals_a_sum_by_hand() -> None:
    import flops

    # tiny: h 64, 4 heads of 16, 2 kv heads, f 128, 4 layers, V 512, S 128
    layer = 64 * 64 + 2 * 64 * 32 + 64 * 64 + 3 * 64 * 128  # q, k + v, o, feed-forward
    attention = 2 * 64 * 128  # scores and values, per token and layer: H x d = 64, S = 128
    assert flops.flops_per_token(config_of("tiny"), 128) == 3 * 2 * (4 * (layer + attention) + 64 * 512)


def test_flops_per_token_equals_torch_counting_an_eager_step() -> None:
    import flops
    import torch
    from torch.utils.flop_counter import FlopCounterMode
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_config(config_of("tiny"), attn_implementation="eager")
    ids = torch.zeros(2, 128, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids).loss.backward()
    assert counter.get_total_flops() == flops.flops_per_token(model.config, 128) * ids.numel()


@pytest.mark.parametrize(("stem", "gflops"), [("llama3-8b", 57.91), ("smollm3-3b", 25.70)])
def test_flops_per_token_at_8k_are_the_known_ones(stem: str, gflops: float) -> None:
    import flops

    assert flops.flops_per_token(config_of(stem), 8192) / 1e9 == pytest.approx(gflops, abs=0.01)


@pytest.mark.parametrize(("name", "tflops"), [
    ("NVIDIA A100-SXM4-80GB", 312.0), ("NVIDIA H100 80GB HBM3", 989.4), ("NVIDIA H100 PCIe", 756.0),
    ("NVIDIA H100 NVL", 835.0), ("NVIDIA H200", 989.4), ("NVIDIA H200 NVL", 836.0), ("NVIDIA GH200 480GB", 989.4),
    ("NVIDIA B200", 2250.0), ("NVIDIA GB200", 2500.0),
])
def test_peak_is_that_of_the_card_and_not_of_its_namesake(name: str, tflops: float) -> None:
    import flops

    peak = flops.peak_bf16_tflops(name)
    assert peak is not None
    assert peak[0] == tflops
    assert "data sheet" in peak[1]


@pytest.mark.parametrize("name", ["NVIDIA H20", "NVIDIA A10G", "Tesla V100-SXM2-16GB", "NVIDIA H100 80GB HBM3 MIG 1g.10gb"])
def test_unknown_card_has_no_peak_rather_than_a_wrong_one(name: str) -> None:
    import flops

    assert flops.peak_bf16_tflops(name) is None
    found = flops.efficiency(config_of("tiny"), 128, 1e5, name, "bfloat16")
    assert (found.mfu, found.mfu_reason) == (None, f"no peak is known for {name}")


def test_mfu_follows_from_its_own_fields() -> None:
    import flops

    found = flops.efficiency(config_of("llama3-8b"), 8192, 8000.0, "NVIDIA H100 80GB HBM3", "bfloat16")
    assert found.mfu == pytest.approx(57.91e9 * 8000 / 989.4e12, rel=1e-3)  # 0.468
    assert found.mfu_reason is None


def test_mfu_is_not_computed_in_float32_nor_on_a_cpu() -> None:
    import flops

    assert "bfloat16" in (flops.efficiency(config_of("tiny"), 128, 1.0, "NVIDIA H200", "float32").mfu_reason or "")
    assert flops.efficiency(config_of("tiny"), 128, 1.0, None, "float32").mfu_reason == "no peak is known for cpu"


def test_generated_row_depends_on_seed_and_index_alone() -> None:
    import data

    few, many = data.GeneratedText(3, 64, 42), data.GeneratedText(300, 64, 42)
    assert few[2]["input_ids"].tolist() == many[2]["input_ids"].tolist()
    assert many[2]["row"] == 2
    assert few[1]["input_ids"].tolist() != few[2]["input_ids"].tolist()
    assert data.fingerprint(few) == data.fingerprint(data.GeneratedText(3, 64, 42))
    assert data.fingerprint(few) != data.fingerprint(data.GeneratedText(3, 64, 43))
    assert max(few[0]["input_ids"].tolist()) < data.BYTE_VOCABULARY


def test_packing_fills_every_row_and_keeps_the_order() -> None:
    import data

    packed = data.pack([[1, 2, 3], [4, 5], [6, 7, 8, 9]], rows=2, sequence_length=4)
    assert packed.tolist() == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_a_dataset_that_is_too_small_says_so() -> None:
    import data

    with pytest.raises(data.DataError, match="fills 1 rows of 4 tokens, the run needs 2"):
        data.pack([[1, 2, 3, 4, 5]], rows=2, sequence_length=4)


class Columns:
    """As much of a datasets.Dataset as is read."""

    def __init__(self, rows: list[dict[str, str]]) -> None:
        self.rows, self.column_names = rows, list(rows[0])

    def __iter__(self) -> Any:
        return iter(self.rows)


def test_alpaca_format_and_plain_text_are_read_and_others_refused() -> None:
    import data

    alpaca = list(data.texts(Columns([{"instruction": "Add.", "input": "1 1", "output": "2"},
                                      {"instruction": "Stop.", "input": "", "output": "Yes."}])))
    assert "### Instruction:\nAdd.\n\n### Input:\n1 1\n\n### Response:\n2" in alpaca[0]
    assert "### Input" not in alpaca[1]
    assert list(data.texts(Columns([{"text": "a b"}]))) == ["a b"]
    with pytest.raises(data.DataError, match="columns"):
        list(data.texts(Columns([{"audio": "x"}])))


def test_steady_window_judges_the_slowest_rank_of_each_step() -> None:
    import meter

    steady = meter.steady_window([[9.0, 1.0, 1.0], [9.0, 2.0, 2.0]], ["n0", "n1"], warmup_steps=1, tokens_per_step=100)
    assert steady.tokens_per_s == 100 * 2 / 4.0
    assert (steady.step_time_s.p50, steady.step_time_s.p95, steady.step_time_s.max) == (1.5, 2.0, 2.0)
    assert (steady.step_time_s.slowest_rank, steady.step_time_s.slowest_rank_node) == (1, "n1")


def test_a_window_without_a_step_is_an_error_and_no_number() -> None:
    import meter

    with pytest.raises(ValueError, match="no step is left"):
        meter.steady_window([[1.0]], ["n0"], warmup_steps=1, tokens_per_step=1)


def test_memory_names_the_worst_rank() -> None:
    import meter

    assert meter.memory([(1.0, None, None), (2.0, None, None)]).max_rank == 1
    on_gpu = meter.memory([(1.0, 9.0, 10.0), (2.0, 8.0, 12.0)])
    assert (on_gpu.max_rank, on_gpu.device_allocated_gib, on_gpu.device_reserved_gib) == (0, 9.0, 12.0)


@pytest.mark.parametrize(("wrapper", "placements", "mesh", "world", "kind"), [
    ("", ["plain"], None, 1, "single"),
    ("", ["plain"], None, 2, "unknown"),
    ("DataParallel", ["plain"], None, 1, "unknown"),
    ("DistributedDataParallel", ["plain"], None, 2, "ddp"),
    ("", ["(Shard(dim=0),)"], [[0, 1]], 2, "fsdp"),
    ("", ["(Shard(dim=0),)"], [[0, 1]], 4, "unknown"),
    ("", ["(Shard(dim=0),)", "plain"], [[0, 1]], 2, "unknown"),
    ("", ["(Replicate(), Shard(dim=0))"], [[0, 1], [2, 3]], 4, "hsdp"),
    ("", ["(Replicate(), Shard(dim=0))"], [[0], [1]], 2, "unknown"),
])
def test_kind_is_read_from_wrapper_placements_and_mesh(
    wrapper: str, placements: list[str], mesh: list[list[int]] | None, world: int, kind: str
) -> None:
    import strategy

    assert strategy.kind_of(wrapper, placements, mesh, world) == kind


@pytest.mark.parametrize(("expected", "hosts", "message"), [
    (("ddp",), ["a"], "expected ddp on 2 or more ranks, observed 1 rank"),
    (("fsdp", 2, None), ["a", "a"], "expected fsdp across 2 or more hosts, observed 2 rank(s) on 1 host(s) (a)"),
    (("ddp",), ["a", "b"], "expected ddp on 1 host(s), observed 2 rank(s) on 2 host(s) (a, b)"),
    (("single",), ["a", "a"], "expected single, observed 2 rank(s)"),
])
def test_wrong_number_of_ranks_or_hosts_for_the_name_is_refused(
    expected: tuple[Any, ...], hosts: list[str], message: str
) -> None:
    import strategy

    with pytest.raises(strategy.Refused) as refused:
        strategy.require_places(strategy.Expected(*expected), hosts)
    assert message in str(refused.value)


def test_hsdp_whose_shard_group_leaves_its_host_is_refused() -> None:
    import strategy
    from bringup.records import ObservedStrategy

    def seen(hosts: list[str]) -> ObservedStrategy:
        return ObservedStrategy(
            kind="hsdp", distributed_type="FSDP", wrapper="FSDPLlamaForCausalLM", placements=[strategy.REPLICATE_SHARD],
            mesh=[[0, 1], [2, 3]], mesh_dims=["dp_replicate", "dp_shard_cp"], parameters=4, parameters_local_max=2,
            backend="gloo", hosts=hosts, devices=["cpu"] * 4)

    expected = strategy.Expected("hsdp", 2, None)
    strategy.require(seen(["a", "a", "b", "b"]), expected)
    with pytest.raises(strategy.Refused, match=r"observed group \[0, 1\] on a, b"):
        strategy.require(seen(["a", "b", "a", "b"]), expected)
