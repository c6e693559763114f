"""The loss in chunks of tokens: the loss and the gradients of the logits that are there whole, without them."""

import json
from typing import Any

import predict
import pytest
import torch
from bringup.training.formulae import memory, models
from recipe.fast import chunked_loss
from recipe.strategy import Refused
from tiers import first
from torch.distributed.tensor import debug
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig, LlamaForCausalLM

pytestmark = pytest.mark.filterwarnings("default")
ROWS, LENGTH, VOCABULARY, CHUNK = 3, 50, 512, 48  # 150 tokens: the last of four chunks is a small one


def model_of(*, tied: bool = False, **changes: Any) -> Any:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(**sizes, vocab_size=VOCABULARY, tie_word_embeddings=tied, **changes))


def pair(monkeypatch: pytest.MonkeyPatch, *, tied: bool = False) -> tuple[Any, Any]:
    """(plain, the same in chunks)."""
    monkeypatch.setattr(chunked_loss, "CHUNK_TOKENS", CHUNK)
    plain, chunked = model_of(tied=tied), model_of(tied=tied)
    chunked_loss.ChunkedLoss(chunked)
    return plain, chunked


def batch() -> dict[str, Any]:
    """With labels that do not count: half of a row."""
    ids = torch.randint(0, VOCABULARY, (ROWS, LENGTH), generator=torch.Generator().manual_seed(1))
    labels = ids.clone()
    labels[0, LENGTH // 2 :] = -100
    return {"input_ids": ids, "labels": labels}


@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("items", [None, 77], ids=["mean", "of a number"])
def test_in_float32_the_loss_and_all_gradients_are_those_of_whole_logits(monkeypatch, tied, items):
    plain, chunked = pair(monkeypatch, tied=tied)
    given = batch() if items is None else batch() | {"num_items_in_batch": torch.tensor(items)}
    losses = [model(**given).loss for model in (plain, chunked)]
    for loss in losses:
        loss.backward()
    assert losses[1].item() == pytest.approx(losses[0].item(), rel=1e-6)
    for (name, expected), observed in zip(plain.named_parameters(), chunked.parameters(), strict=True):
        assert observed.grad is not None, name
        assert (observed.grad - expected.grad).abs().max() <= 2e-6 * expected.grad.abs().max(), name


def test_under_autocast_the_loss_is_float32_and_the_head_gets_its_gradient_in_float32(monkeypatch):
    plain, chunked = pair(monkeypatch)
    with torch.autocast("cpu", torch.bfloat16):
        losses = [model(**batch()).loss for model in (plain, chunked)]
    for loss in losses:
        loss.backward()
    assert losses[1].dtype is torch.float32
    assert losses[1].item() == pytest.approx(losses[0].item(), abs=1e-5)
    head = chunked.lm_head.weight.grad
    assert (head != head.bfloat16().float()).any(), "each chunk's was rounded to bfloat16, their sum is not"
    assert (head - plain.lm_head.weight.grad).abs().max() <= 2e-2 * head.abs().max()


def test_no_tensor_holds_the_logits_of_all_tokens(monkeypatch):
    class Largest(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            out = func(*args, **(kwargs or {}))
            sizes = [leaf.numel() for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
            self.elements = max([self.elements, *sizes])
            return out

    largest = []
    for model in pair(monkeypatch):
        with Largest() as seen:
            model(**batch()).loss.backward()
        largest.append(seen.elements)
    assert largest == [ROWS * LENGTH * VOCABULARY, VOCABULARY * 64]  # the second is the head's own weight


def test_a_second_backward_pass_is_an_error_and_no_wrong_gradient(monkeypatch):
    _, chunked = pair(monkeypatch)
    loss = chunked(**batch()).loss
    loss.backward(retain_graph=True)
    with pytest.raises(AttributeError):
        loss.backward()


def test_what_is_between_the_head_and_the_loss_is_refused(monkeypatch):
    """A model that scales or caps its logits would train on something else."""
    _, chunked = pair(monkeypatch)
    compute = chunked.loss_function
    chunked.loss_function = lambda logits, **named: compute(logits=logits / 2, **named)
    with pytest.raises(Refused, match="leave out --recipe fast"):
        chunked(**batch())


def test_a_head_with_a_bias_is_refused():
    model = model_of()
    model.lm_head = torch.nn.Linear(64, VOCABULARY)
    with pytest.raises(Refused, match="no linear layer without a bias"):
        chunked_loss.ChunkedLoss(model)


@pytest.mark.parametrize("strategy", first(["fsdp", "single"]))
@pytest.mark.parametrize("accumulation", first([1, 2]))
def test_the_peak_without_whole_logits_is_predicted(tmp_path, strategy, accumulation):
    """By the formulae, as torch's MemTracker counts it on the real model; the gate allows 15 %."""
    file = tmp_path / "small.json"
    sizes = {"hidden_size": 256, "intermediate_size": 688, "num_hidden_layers": 2, "num_attention_heads": 4}
    llama = {"model_type": "llama", "vocab_size": 32000, "num_key_value_heads": 2, "head_dim": 64}
    file.write_text(json.dumps(sizes | llama))
    peaks = []
    for chunked in (False, True):
        debug._clear_sharding_prop_cache()
        step = predict.Step(str(file), strategy, 1, 2, 4096, accumulation=accumulation, chunked_loss=chunked)
        measured = predict.computed(step)["peak_bytes"]["total"]
        job = models.Job(strategy, 1, 2, 4096, accumulation=accumulation, chunked_loss=chunked)
        assert memory.peak(models.load(str(file)), job).total - memory.WORKSPACE == pytest.approx(measured, rel=0.05)
        peaks.append(measured)
    assert peaks[1] < 0.7 * peaks[0]
