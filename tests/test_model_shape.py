"""The shape of any causal LM, read from the model itself: held against torch's own counters, and never guessed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import predict
import pytest
import torch
from bringup.kernel.errors import ModelError
from bringup.training.formulae import flops, memory, models, traffic
from bringup.training.formulae.models import Job
from bringup.training.records import ModelShape
from loops import case_for_each, for_each
from recipe import model_shape, observed_strategy, weights
from tiers import first
from torch.distributed.tensor import debug
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, AutoModelForCausalLM

# torch and transformers warn about their own insides; what is tested here is ours
pytestmark = pytest.mark.filterwarnings("default")

SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4}
SMALL |= {"vocab_size": 80, "max_position_embeddings": 64}
GROUPED = {"num_key_value_heads": 2}
LOCAL = {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 8}
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": GROUPED,
    "mistral": GROUPED | {"sliding_window": 8},
    "smollm3": GROUPED | {"pad_token_id": 0},
    "qwen2": GROUPED,  # with biases
    "qwen3": GROUPED | {"head_dim": 32},  # heads wider than hidden / heads; norms of queries and keys
    "gemma": GROUPED | {"head_dim": 16},
    "gemma2": LOCAL,
    "gemma3_text": LOCAL | {"layer_types": ["sliding_attention", "full_attention"]},
    "phi": GROUPED,  # one norm; attention beside the feed-forward
    "phi3": GROUPED | {"pad_token_id": 0},  # q, k, v in one weight
    "gpt2": {},  # Conv1D, learned positions, dropout
    "gpt_neox": {},
    "opt": {"ffn_dim": 96, "word_embed_proj_dim": 32},  # projections around a narrower embedding
    "falcon": {},  # one key for all heads
    "stablelm": GROUPED,
    "olmo2": GROUPED,
    "granite": GROUPED,
    "bloom": {},
    "starcoder2": GROUPED,
    "cohere": GROUPED,
    "glm": GROUPED | {"head_dim": 16, "pad_token_id": 0},
}
EAGER = ("gemma2", "bloom")  # have no other attention, or cap its scores


def config_of(model_type: str, **changes: Any) -> Any:
    return AutoConfig.for_model(model_type, **SMALL | CONFIGS.get(model_type, {}) | changes)


def write(folder: Path, model_type: str, **changes: Any) -> Path:
    config_of(model_type, **changes).save_pretrained(folder)
    return folder / "config.json"


def without_memory(config_file: Path, attention: str = "sdpa") -> Any:
    return weights.without_memory(SimpleNamespace(model_config=config_file, attention=attention))


def shape_of(model: Any, name: str = "small", length: int = 32) -> ModelShape:
    return model_shape.shape_of(model, name, length)


@for_each(*CONFIGS)
def test_parameters_and_flops_are_those_that_torch_counts(model_type):
    model = AutoModelForCausalLM.from_config(config_of(model_type), attn_implementation="eager").train()
    ids = torch.ones(2, 32, dtype=torch.long)
    with FlopCounterMode(display=False) as counter:
        model(input_ids=ids, labels=ids).loss.backward()
    shape = shape_of(model)
    assert shape.not_covered is None
    assert shape.parameters == sum(p.numel() for p in model.parameters())
    assert shape.layers == 2
    # transformers makes rotary angles by a product of matrices: some FLOP more than those of the model
    assert counter.get_total_flops() == pytest.approx(flops.flops_per_token(shape, 32) * ids.numel(), rel=1e-3)


@for_each(*sorted(path.stem for path in models.MODELS.glob("*.json")))
def test_a_configuration_and_its_model_have_one_shape(stem):
    assert shape_of(without_memory(models.MODELS / f"{stem}.json"), stem, 2048) == models.load(stem)


def test_attention_is_read_layer_by_layer(tmp_path):
    gemma = shape_of(without_memory(write(tmp_path / "gemma", "gemma3_text")))
    assert {(like.layers, like.head_size, like.window) for like in gemma.attention} == {(1, 16, 8), (1, 16, None)}
    (mistral,) = shape_of(without_memory(write(tmp_path / "mistral", "mistral"))).attention
    assert (mistral.heads, mistral.kv_heads, mistral.window) == (4, 2, 8)
    (qwen,) = shape_of(without_memory(write(tmp_path / "qwen", "qwen2", sliding_window=8))).attention
    assert qwen.window is None  # use_sliding_window is false
    (gpt2,) = shape_of(without_memory(write(tmp_path / "gpt2", "gpt2"))).attention
    assert gpt2.kv_heads is None


@case_for_each(
    ("mixtral", {"num_local_experts": 2}, "torch cannot count them without values"),
    ("mamba", {}, "torch counts"),
    ("recurrent_gemma", {}, "torch counts"),
    ("openai-gpt", {}, "torch counts"),
    ("gpt2", {"add_cross_attention": True}, "torch counts"),  # weights that these tokens never meet
)
def test_what_is_not_covered_says_why_and_has_states_all_the_same(tmp_path, model_type, changes, says):
    model = without_memory(write(tmp_path, model_type, **changes), "eager")
    shape = shape_of(model)
    assert says in (shape.not_covered or "")
    assert flops.flops_per_token(shape, 32) is None
    efficiency = flops.efficiency(shape, 32, 1.0, "NVIDIA H200", "bfloat16")
    assert (efficiency.mfu, efficiency.mfu_reason) == (None, f"FLOPs of small are not covered: {shape.not_covered}")
    assert memory.states(shape, 1).total == 16 * sum(p.numel() for p in model.parameters())


def test_a_model_that_runs_its_blocks_twice_has_no_flops_by_formula(tmp_path):
    """Its MFU was half of what it is."""
    model = without_memory(write(tmp_path, "llama"))
    model.model.layers[1] = model.model.layers[0]
    assert "torch counts 4.485e+05 per token in a step of it, the formula 2.3" in (shape_of(model).not_covered or "")


@pytest.mark.parametrize("model_type", first(["llama", "qwen2", "gemma3_text", "gpt2", "recomputed"]))
@pytest.mark.parametrize("strategy", ["fsdp", "single"])
def test_states_peak_and_traffic_are_those_of_the_real_model_and_the_real_fully_shard(tmp_path, model_type, strategy):
    """As predict.py computes them; the peak of a Llama alone. The gate allows 15 %."""
    recomputed = {"activation_checkpointing": True} if model_type == "recomputed" else {}
    model_type = "llama" if recomputed else model_type

    file, attention = write(tmp_path, model_type), "eager" if model_type in EAGER else "sdpa"
    debug._clear_sharding_prop_cache()
    predicted = predict.computed(predict.Step(str(file), strategy, 1, 2, 64, rows=2, attention=attention, **recomputed))
    model = without_memory(file, attention)
    shape, job = shape_of(model), Job(strategy, 1, 2, 64, rows=2, eager_attention=attention == "eager", **recomputed)
    states = memory.states(shape, job.shards)
    held = predicted["states_bytes"]
    assert (states.parameters, states.gradients) == (held["parameters"], held["gradients"])
    if model_type == "llama":  # whose blocks have a formula
        peak = memory.peak(shape, job).total - memory.WORKSPACE  # there is no cuBLAS under fake tensors
        assert peak == pytest.approx(predicted["peak_bytes"]["total"], rel=0.1)
    else:
        with pytest.raises(ModelError, match="no formula for what its blocks keep"):
            memory.peak(shape, job)
    assert memory.states(shape, job.shards).total < predicted["peak_bytes"]["total"]
    assert {(each.operation, each.ranks, each.calls, each.size) for each in traffic.collectives(shape, job)} == {
        (each["operation"], each["group_size"], each["calls"], each["bytes"]) for each in predicted["collectives"]
    }


def test_the_first_linear_layer_of_a_block_is_found_also_in_a_gpt2(tmp_path):
    """Its data type is what shows that the model computes in bfloat16."""
    watched = observed_strategy.FirstStep(lambda: None)
    watched.on_train_begin(None, None, None, model=without_memory(write(tmp_path, "gpt2")))
    assert len(watched.forwards) == 2
