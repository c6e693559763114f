"""Two parts of --recipe fast, each alone: which operations run again in the backward pass, and what is gathered ahead.
That losses stay the same is seen in real trainings (test_training_runs.py)."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing._internal.distributed.fake_pg import FakeStore
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoModelForCausalLM, LlamaConfig

ROOT = Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "training" / "src"))
sys.path.append(str(ROOT / "infrastructure-validation" / "probes"))
pytestmark = pytest.mark.filterwarnings("default")

LAYERS = 3
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 2, "vocab_size": 64, "use_cache": False}


class Operations(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[func.name()] += 1
        return func(*args, **(kwargs or {}))


def calls(how: str) -> tuple[Counter[str], torch.Tensor]:
    """(operations of a forward and a backward pass, a gradient). how: nothing, whole, selective."""
    from recipe import selective

    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(LlamaConfig(num_hidden_layers=LAYERS, **SIZES)).train()
    if how != "nothing":
        contexts = {"context_fn": selective.CONTEXTS} if how == "selective" else {}
        model.activation_checkpointing_enable({"use_reentrant": False, **contexts})
    ids = torch.arange(2 * 8).reshape(2, 8)
    with Operations() as seen:
        model(input_ids=ids, labels=ids).loss.backward()
    return seen.calls, next(model.parameters()).grad


def test_products_and_attention_are_kept_and_what_stands_between_them_is_computed_again() -> None:
    (nothing, gradient), (whole, of_whole), (kept, of_kept) = (calls(how) for how in ("nothing", "whole", "selective"))
    attention = next(name for name in nothing if "scaled_dot_product" in name and "backward" not in name)
    assert whole["aten::mm"] == nothing["aten::mm"] + LAYERS * 6  # q, k, v, o, gate, up; nothing asks for that of down
    assert whole[attention] == 2 * nothing[attention] == 2 * LAYERS
    assert (kept["aten::mm"], kept[attention]) == (nothing["aten::mm"], nothing[attention])
    assert kept["aten::rsqrt"] == whole["aten::rsqrt"] > nothing["aten::rsqrt"]  # of the norms
    assert torch.equal(gradient, of_whole) and torch.equal(gradient, of_kept)


def test_two_blocks_ahead_are_gathered_in_both_directions(tmp_path: Path) -> None:
    import predict
    from recipe.fast import Prefetch
    from recipe.observed_strategy import decoder_layers

    LlamaConfig(num_hidden_layers=4, **SIZES).save_pretrained(tmp_path)
    step = predict.Step(str(tmp_path / "config.json"), "fsdp", 1, 2, 8)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = predict.mesh_of(step)
        with FakeTensorMode(allow_non_fake_inputs=True):
            model = predict._model(step, mesh)
            Prefetch().on_train_begin(None, None, None, model=model)
        states = [block._get_fsdp_state() for block in decoder_layers(model)]
        ahead = [[states.index(each) for each in state._states_to_forward_prefetch] for state in states]
        behind = [[states.index(each) for each in state._states_to_backward_prefetch] for state in states]
        assert ahead == [[1, 2], [2, 3], [3], []]
        assert behind == [[], [0], [1, 0], [2, 1]]
    finally:
        dist.destroy_process_group()
