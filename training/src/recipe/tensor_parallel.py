"""Tensor parallelism: neighbouring ranks share the matrix products of a row (Megatron-LM, arXiv 1909.08053), and FSDP
shards over the others.

transformers cuts the model by the plan in its configuration, before a Trainer sees it. Then Trainer tells accelerate
the sizes (ParallelismConfig), and nothing wraps the model again. accelerate has a way of its own, which needs a class
that transformers 5 no longer has.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from transformers.distributed import DistributedConfig
from transformers.distributed.utils import TransformersDeviceMesh

from recipe import group
from recipe.rank import one_line
from recipe.strategy import Refused

AXES = ("pp", "dp_replicate", "fsdp", "tp")
IN_PIECES = ("packed", "moe", "mla")  # styles of a plan: a rank's part is not one range of rows or columns
HEADS = ("num_attention_heads", "num_key_value_heads")


def cut(model: Any, ranks: int, *, bf16: bool, ranks_of_node: int) -> Any:
    """The model, on the meta device, with its parameters cut over `ranks` and then over all others. A collective.

    bf16: gathered and computed in bfloat16, gradients reduced in float32. Raises Refused.
    """
    if ranks_of_node % ranks:
        raise Refused(
            f"--tensor-parallel {ranks}: expected a part of the {ranks_of_node} rank(s) of a node: every block "
            "waits for its ranks"
        )
    option, config = f"--tensor-parallel {ranks}", model.config.get_text_config()
    uneven = [f"{name} {getattr(config, name)}" for name in HEADS if (getattr(config, name, None) or 0) % ranks]
    if uneven:
        raise Refused(f"{option} does not divide {uneven[0]} of the model: give one that does")
    if model.all_tied_weights_keys:
        # cut twice and tied again, one of the two would keep its first values where a shard is padded (torch 2.13)
        raise Refused(f"{option}: the model's LM head is its embedding, which cannot be cut as one; leave it out")
    pieces = sorted(style for style in set(model.tp_plan.values()) if style.startswith(IN_PIECES))
    if pieces:
        raise Refused(
            f"{option}: the model has weights that are cut in pieces ({pieces[0]}), which no checkpoint can hold"
        )
    shards = dist.get_world_size() // ranks
    # not by prepare_distribute_model(), which takes the GPU of the local rank: here a rank may see only its own
    mesh = init_device_mesh(group.DEVICE.type, (1, 1, shards, ranks), mesh_dim_names=AXES)
    sizes = DistributedConfig(tp_size=ranks, fsdp_size=shards, fsdp_mixed_precision=bf16)
    try:
        return model.maybe_distribute_model(model, sizes, TransformersDeviceMesh(mesh, mesh))
    except ValueError as error:  # no plan in the model's configuration
        raise Refused(f"{option}: {one_line(str(error))}") from error
