"""The shape of a model, read from the model that was built: no table of names decides what is known of it.

Counts come from the shapes of its parameters, which are those of the whole tensors also on the meta device and in
DTensors. Weights that are multiplied are those of linear layers. Attention is read from the configuration and from the
modules of the blocks. What is not certain is not guessed: `not_covered` says why its FLOPs are not known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from accelerate.utils.fsdp_utils import _find_final_norm
from bringup.records import Attention, Blocks, ModelShape, Tensor

from recipe.observed_strategy import LINEAR, decoder_layers

EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")  # of configurations
UNLIKE = ("linear_attention", "mamba", "recurrent", "conv")  # layer types that compute no S x S scores


def shape_of(model: Any, name: str) -> ModelShape:
    """Return the shape of a causal LM of transformers, with or without memory, before or after it was sharded."""
    blocks = decoder_layers(model)
    source, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = source is not None and head is not None and source.weight is head.weight
    norm = _find_final_norm(model)  # as accelerate finds it, which makes the groups of FSDP
    seen: set[int] = set()
    of_blocks = [_tensors([block], seen) for block in blocks]
    embedding = () if tied or source is None else _tensors([source], seen)
    tail = _tensors([module for module in (norm, source if tied else None, head) if module is not None], seen)
    attention, problem = _attention(model, blocks)
    text = model.config.get_text_config()
    return ModelShape(
        name=name,
        hidden=text.hidden_size,
        vocabulary=text.vocab_size,
        tied=tied,
        embedding=embedding,
        blocks=tuple(Blocks(count=count, tensors=tensors) for tensors, count in Counter(of_blocks).items() if tensors),
        tail=tail,
        rest=_tensors([model], seen),
        matmul_parameters=sum(module.weight.numel() for module in model.modules() if isinstance(module, LINEAR)),
        attention=attention,
        not_covered=_other_than_dense(model) or problem,
    )


def _tensors(modules: Iterable[Any], seen: set[int]) -> tuple[Tensor, ...]:
    """Return the shapes of their parameters that were not seen yet: a tied one belongs to its first group."""
    shapes = []
    for p in (p for module in modules for p in module.parameters()):
        if id(p) not in seen and p.numel():
            seen.add(id(p))
            rows = p.shape[0] if p.dim() else 1
            shapes.append((rows, p.numel() // rows))
    return tuple(shapes)


def _other_than_dense(model: Any) -> str | None:
    """Why the weights of linear layers are not all that is multiplied, once per token."""
    text = model.config.get_text_config()
    experts = next((f"{key} {_field(text, key)}" for key in EXPERTS if (_field(text, key) or 0) > 1), None)
    if experts is not None:
        return f"a mixture of experts ({experts}): which weights a token meets is decided while it runs"
    if text is not model.config:
        return "a model of more than text, whose other parts these tokens do not meet"
    used_as = (*LINEAR, torch.nn.Embedding)
    for name, module in model.named_modules():
        odd = [key for key, p in module.named_parameters(recurse=False) if p.dim() > 1]
        if odd and not isinstance(module, used_as):
            return f"{name}.{odd[0]} ({type(module).__name__}) is neither of a linear layer nor of an embedding"
    return None


def _attention(model: Any, blocks: list[Any]) -> tuple[tuple[Attention, ...], str | None]:
    """Return (alike layers together, None) or (none, why not)."""
    config = model.config.get_text_config()
    heads, kv_heads = (_field(config, key) for key in ("num_attention_heads", "num_key_value_heads"))
    if not isinstance(heads, int):
        return (), "its configuration has no number of attention heads that all layers share"
    if not blocks:
        return (), "it names no decoder blocks"
    types = _field(config, "layer_types") or [None] * len(blocks)
    if len(types) != len(blocks):
        return (), f"its configuration has {len(types)} layer_types, and the model {len(blocks)} blocks"
    unlike = sorted({kind for kind in types if kind is not None and any(word in kind for word in UNLIKE)})
    if unlike:
        return (), f"layers of type {unlike[0]}, whose FLOPs are not those of attention"
    if _field(config, "kv_lora_rank"):
        return (), "its heads have one size for scores and another one for values (kv_lora_rank)"
    alike: Counter[tuple[int, int | None]] = Counter()
    for block, kind in zip(blocks, types, strict=True):
        sizes = _numbers(block, "head_dim") or {_field(config, "head_dim") or config.hidden_size // heads}
        if len(sizes) != 1:
            return (), f"a block with heads of several sizes ({sorted(sizes)})"
        alike[sizes.pop(), _window(config, block, kind)] += 1
    kv_heads = kv_heads if isinstance(kv_heads, int) else None
    return tuple(
        Attention(layers=count, heads=heads, kv_heads=kv_heads, head_size=size, window=window)
        for (size, window), count in alike.items()
    ), None


def _field(config: Any, key: str) -> Any:
    """None where it is missing, or differs by layer, which transformers raises a RuntimeError for."""
    try:
        return getattr(config, key, None)
    except RuntimeError:
        return None


def _window(config: Any, block: Any, kind: str | None) -> int | None:
    if kind is not None:
        key = {"sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}.get(kind)
        return None if key is None else _field(config, key)
    if _field(config, "use_sliding_window") is False:
        return None
    return min(_numbers(block, "sliding_window"), default=_field(config, "sliding_window"))


def _numbers(block: Any, attribute: str) -> set[int]:
    """Values that the modules of a block have."""
    values = {getattr(module, attribute, None) for module in block.modules()}
    return {value for value in values if isinstance(value, int) and not isinstance(value, bool)}
