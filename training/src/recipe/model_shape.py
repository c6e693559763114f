"""The shape of a model, read from the model that was built: no table of names decides what is known of it.

Counts come from the shapes of its parameters, also on the meta device; attention is read from the configuration.
Whether the formulae count such a model is not guessed: torch counts the FLOPs of one step of it, and `not_covered` says
where they are others.
"""

import copy
import logging
import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

import torch
from accelerate.utils.fsdp_utils import _find_final_norm
from bringup.training.formulae.flops import flops_per_token
from bringup.training.records import Attention, Blocks, ModelShape, Tensor

from recipe.data import first_line
from recipe.fast import without_waits
from recipe.observed_strategy import LINEAR, decoder_layers

WINDOWS = {None: "sliding_window", "sliding_attention": "sliding_window", "chunked_attention": "attention_chunk_size"}


def shape_of(model: Any, name: str, sequence_length: int) -> ModelShape:
    """Return the shape of a causal LM of transformers, with or without memory, before it is wrapped."""
    blocks = decoder_layers(model)
    source, head = model.get_input_embeddings(), model.get_output_embeddings()
    tied = source is not None and head is not None and source.weight is head.weight
    norm = _find_final_norm(model)  # as accelerate finds it, which makes the groups of FSDP
    seen: set[int] = set()
    of_blocks = [_tensors([block], seen) for block in blocks]
    embedding = () if tied or source is None else _tensors([source], seen)
    tail = _tensors([module for module in (norm, source if tied else None, head) if module is not None], seen)
    text = model.config.get_text_config()
    shape = ModelShape(
        name=name,
        hidden=text.hidden_size,
        vocabulary=text.vocab_size,
        tied=tied,
        embedding=embedding,
        blocks=tuple(Blocks(count=count, tensors=tensors) for tensors, count in Counter(of_blocks).items() if tensors),
        tail=tail,
        rest=_tensors([model], seen),
        matmul_parameters=sum(module.weight.numel() for module in model.modules() if isinstance(module, LINEAR)),
        attention=_attention(text, len(blocks)),
    )
    return shape.model_copy(update={"not_covered": _not_covered(model, shape, sequence_length)})


def _tensors(modules: Iterable[Any], seen: set[int]) -> tuple[Tensor, ...]:
    """Return the shapes of their parameters that were not seen yet: a tied one belongs to its first group."""
    shapes = []
    for p in (p for module in modules for p in module.parameters()):
        if id(p) not in seen and p.numel():
            seen.add(id(p))
            rows = p.shape[0] if p.dim() else 1
            shapes.append((rows, p.numel() // rows))
    return tuple(shapes)


def _attention(config: Any, layers: int) -> tuple[Attention, ...]:
    """Return alike layers together, as the configuration has them; none where its layers have no number of heads."""
    heads, kv_heads, size = (_field(config, key) for key in ("num_attention_heads", "num_key_value_heads", "head_dim"))
    if not isinstance(heads, int):
        return ()
    windows = {} if _field(config, "use_sliding_window") is False else WINDOWS
    return tuple(
        Attention(
            layers=count,
            heads=heads,
            kv_heads=kv_heads if isinstance(kv_heads, int) else None,
            head_size=size or config.hidden_size // heads,
            window=_field(config, windows.get(kind, "")),
        )
        for kind, count in Counter(_field(config, "layer_types") or [None] * layers).items()
    )


def _field(config: Any, key: str) -> Any:
    """None where it is missing, or differs by layer, which transformers raises a RuntimeError for."""
    try:
        return getattr(config, key, None)
    except RuntimeError:
        return None


def _not_covered(model: Any, shape: ModelShape, sequence_length: int) -> str | None:
    """Say why the formula does not count what a step computes: blocks that run several times, experts, other layers."""
    of_formula = flops_per_token(shape, sequence_length)
    try:
        counted = counted_flops(model, sequence_length) / sequence_length
    except Exception as error:  # noqa: BLE001  # the model's own code, with tensors that have no values
        return f"torch cannot count them without values, as of a mixture of experts: {first_line(error)}"
    if of_formula is not None and math.isclose(counted, of_formula, rel_tol=0.01):
        return None
    return f"torch counts {counted:.4g} per token in a step of it, the formula {of_formula:.4g}"


def counted_flops(model: Any, sequence_length: int) -> int:
    """Count the FLOPs of a training step on one row, with eager attention, on the meta device: nothing is computed."""
    logging.getLogger("torch.utils.flop_counter").setLevel(logging.ERROR)  # "triton not found" is no news on a CPU
    from torch.utils.flop_counter import FlopCounterMode  # it warns when it is imported

    apart = copy.deepcopy(model).to("meta")
    apart.set_attn_implementation("eager")
    ids = torch.zeros(1, sequence_length, dtype=torch.long, device="meta")
    with without_waits(), FlopCounterMode(display=False) as counter:
        apart(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    return counter.get_total_flops()
