"""--fast float8: the products of the decoder blocks in float8, by torchao. `--recipe fast` leaves it
out, because its results differ.

Weights, gradients, what is sent and the optimizer stay as they are. Each product casts both factors to float8, each
with one scale for the whole tensor (torchao's recipe tensorwise). The LM head stays as it is. Without a GPU the casts
are made and the products are those of before, of the values that were cast.
"""

from __future__ import annotations

import importlib.util
import logging
from typing import Any

import torch

from recipe import group
from recipe.observed_strategy import decoder_layers

LEAST = (8, 9)  # compute capability: Ada, Hopper and newer ones multiply float8
MULTIPLE = 16  # what the kernel takes as sizes of a weight


def lacking(bf16: bool) -> str | None:
    """What speaks against it on this rank; None: nothing."""
    if importlib.util.find_spec("torchao") is None:
        return "needs torchao, which is not installed: pip install torchao, in the version that pyproject.toml names"
    capability = torch.cuda.get_device_capability(group.DEVICE) if group.CUDA else LEAST
    if capability < LEAST:
        return f"needs a GPU that multiplies float8 (compute capability 8.9 or more), observed {capability}"
    return None if bf16 else "needs --bf16: what is cast to float8 is bfloat16"


def convert(model: Any) -> None:
    """In place, before anything wraps it, also where weights have no memory yet. Parameters keep their names."""
    logging.disable(logging.WARNING)  # of kernels that it cannot load, on each rank; these products need none of them
    try:
        from torchao.float8 import Float8LinearConfig, convert_to_float8_training
    finally:
        logging.disable(logging.NOTSET)
    inside = {id(module) for block in decoder_layers(model) for module in block.modules()}

    def is_taken(linear: torch.nn.Linear, name: str) -> bool:
        return id(linear) in inside and not (linear.in_features % MULTIPLE or linear.out_features % MULTIPLE)

    convert_to_float8_training(model, module_filter_fn=is_taken, config=Float8LinearConfig(emulate=not group.CUDA))
