"""Tensor parallelism: neighbouring ranks share the matrix products of a row (Megatron-LM, arXiv 1909.08053), and FSDP
shards over the others.

transformers cuts the model by the plan in its configuration, before a Trainer sees it. Then Trainer tells accelerate
the sizes (ParallelismConfig), and nothing wraps the model again. accelerate has a way of its own, which needs a class
that transformers 5 no longer has.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from transformers.distributed import DistributedConfig
from transformers.distributed.utils import TransformersDeviceMesh

from recipe import group
from recipe.rank import one_line
from recipe.strategy import Refused

AXES = ("pp", "dp_replicate", "fsdp", "tp")
HEADS = ("num_attention_heads", "num_key_value_heads")


def cut(model: Any, ranks: int, *, bf16: bool) -> Any:
    """The model, on the meta device, with its parameters cut over `ranks` and then over all others. A collective.

    bf16: gathered and computed in bfloat16, gradients reduced in float32. Raises Refused.
    """
    if group.LOCAL_WORLD % ranks:
        raise Refused(
            f"--tensor-parallel {ranks}: expected a part of the {group.LOCAL_WORLD} rank(s) of a node: every block "
            "waits for its ranks"
        )
    option, config = f"--tensor-parallel {ranks}", model.config.get_text_config()
    uneven = [f"{name} {getattr(config, name)}" for name in HEADS if (getattr(config, name, None) or 0) % ranks]
    if uneven:
        raise Refused(f"{option} does not divide {uneven[0]} of the model: give one that does")
    shards = dist.get_world_size() // ranks
    # not by prepare_distribute_model(), which takes the GPU of the local rank: here a rank may see only its own
    mesh = init_device_mesh(group.DEVICE.type, (1, 1, shards, ranks), mesh_dim_names=AXES)
    sizes = DistributedConfig(tp_size=ranks, fsdp_size=shards, fsdp_mixed_precision=bf16)
    for name in model.all_tied_weights_keys:  # each is cut by its own rule; weights.fill() ties them again
        module = model.get_submodule(name.rpartition(".")[0])
        module.weight = torch.nn.Parameter(torch.empty_like(module.weight))
    try:
        return model.maybe_distribute_model(model, sizes, TransformersDeviceMesh(mesh, mesh))
    except ValueError as error:  # no plan in the model's configuration
        raise Refused(f"{option}: {one_line(str(error))}") from error
