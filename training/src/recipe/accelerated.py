"""`accelerate launch` says how to train through its environment. The programs have options of their own for that.

Two places for one fact: so they have to agree. What the configuration says, and the programs would not do, is refused
in one line, before any rank waits for another. What torchrun or accelerate itself does (processes, nodes, addresses,
GPU ids, debug mode) needs no check here: the ranks count themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from recipe.arguments import Args
from recipe.strategy import Expected, Refused

_MARK = "ACCELERATE_MIXED_PRECISION"  # accelerate launch always sets it
_SAYS = "the configuration of accelerate launch says"
FIXED = {  # of FSDP_*: the defaults of accelerate, and what FSDP2 here always does
    "version": ("2", "version 1 is another implementation"),
    "sharding_strategy": ("FULL_SHARD", "it is of version 1; --no-reshard-after-forward is ZeRO-2, --hsdp is HSDP"),
    "auto_wrap_policy": ("TRANSFORMER_BASED_WRAP", "each decoder layer is a group"),
    "min_num_params": ("100000000", "it is of another wrap policy"),
    "transformer_cls_to_wrap": ("", "the model names its layers; leave it out"),
    "ignored_modules": ("", "all parameters are sharded; leave it out"),
    "state_dict_type": ("SHARDED_STATE_DICT", "every rank writes its own part"),
    "backward_prefetch": ("", "it is of version 1; leave it out"),
    "forward_prefetch": ("false", "it is of version 1"),
    "use_orig_params": ("true", "it is of version 1"),
    "sync_module_states": ("true", "it is of version 1"),
    "cpu_ram_efficient_loading": ("false", "every rank makes its shard from the seed, or reads it"),
    "offload_params": ("false", "states stay on the device"),
    "activation_checkpointing_offload": ("false", "activations stay on the device"),
}

Known = dict[str, tuple[str, str]]  # variable -> what the program will do, as the variable spells it; advice


def refuse_what_is_ignored(
    args: Args,
    expected: Expected,
    bf16: bool,
    world: int,
    local_world: int,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """bf16: as it is resolved. Raises Refused. Does nothing where the program was not started by accelerate launch."""
    if _MARK not in environment:
        return
    for variable, (does, advice) in known(args, expected, bf16, world, local_world, environment).items():
        stated = environment.get(variable, does)
        if stated.lower() != does.lower():
            raise Refused(
                f"{_SAYS} {variable.removeprefix('ACCELERATE_').lower()}: {stated}, this program has {does or 'none'}; "
                f"{advice}, or change the configuration"
            )


def known(
    args: Args, expected: Expected, bf16: bool, world: int, local_world: int, environment: Mapping[str, str]
) -> Known:
    """All that the environment may say. Raises Refused where it is the configuration of another strategy."""

    def says(variable: str) -> bool:
        return environment.get(variable, "false").lower() == "true"

    if says("ACCELERATE_USE_FSDP") != expected.sharded:
        stated = "another one than FSDP" if expected.sharded else "FSDP"
        raise Refused(
            f"{_SAYS} distributed_type {stated}, this program trains {expected.kind}: take the configuration of "
            "training/accelerate with its name"
        )
    alone = "accelerate launch started processes that do not know each other"
    steps = str(args.gradient_accumulation)
    always = {
        "ACCELERATE_USE_CPU": ("false", alone),
        _MARK: ("bf16" if bf16 else "no", f"give {'--no-bf16' if bf16 else '--bf16'}"),
        "ACCELERATE_DYNAMO_BACKEND": ("no", "--recipe fast compiles"),
        "ACCELERATE_USE_DEEPSPEED": ("false", "DeepSpeed is not used here"),
        "ACCELERATE_USE_MEGATRON_LM": ("false", "Megatron is not used here"),
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": (steps, "give --gradient-accumulation"),
    }
    if not expected.sharded:
        return always
    hybrid = expected.kind == "hsdp"
    of_mesh: Known = {}
    if says("ACCELERATE_USE_PARALLELISM_CONFIG"):
        shards = (args.shard_size or local_world) if hybrid else world
        advice = "shards are the ranks of a node, or --shard-size" if hybrid else "--hsdp makes replicas"
        of_mesh = {"DP_REPLICATE": (str(world // shards), advice), "DP_SHARD": (str(shards), advice)}
        of_mesh |= dict.fromkeys(("CP", "TP", "SP"), ("1", "a rank computes whole rows here"))
    elif hybrid:
        raise Refused(
            f"{_SAYS} no parallelism_config, so FSDP over all ranks; this program was given --hsdp: leave it out, or "
            "take training/accelerate/hsdp_2node_16gpu.yaml"
        )
    own = {  # what the program does, and the option that changes its default
        "reshard_after_forward": (args.reshard_after_forward, True, "--no-reshard-after-forward"),
        "activation_checkpointing": (args.activation_checkpointing, False, "--activation-checkpointing"),
    }
    of_fsdp = FIXED | {
        name: (str(does).lower(), f"{'give' if does == default else 'leave out'} {option}")
        for name, (does, default, option) in own.items()
    }
    return {
        **always,
        **{f"FSDP_{name.upper()}": each for name, each in of_fsdp.items()},
        **{f"PARALLELISM_CONFIG_{name}_SIZE": each for name, each in of_mesh.items()},
    }
