"""The residual stream of one process and of DDP in bfloat16, as it is under FSDP.

Autocast leaves it in float32: embedding and norms give float32, and each sum of a block is float32. FSDP computes with
bfloat16 weights, so that its stream is bfloat16. The embedding's output is what decides: the blocks add bfloat16 to it.
It halves the bytes that elementwise kernels move between the products.
"""

from __future__ import annotations

from typing import Any

import torch


def in_bfloat16(model: Any) -> None:
    """model: a causal LM of transformers that computes under autocast."""
    model.get_input_embeddings().register_forward_hook(lambda module, inputs, output: output.to(torch.bfloat16))
