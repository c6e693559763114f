"""`accelerate launch` says how to train through its environment. The programs have options of their own for that.

Two places for one fact: so they have to agree. What the configuration says, and the programs would not do, is refused
in one line, before any rank waits for another. What torchrun or accelerate itself does (processes, nodes, addresses,
GPU ids, debug mode) needs no check here: the ranks count themselves.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from recipe.arguments import Args
from recipe.strategy import Expected, Refused

_MARK = "ACCELERATE_MIXED_PRECISION"  # accelerate launch always sets it
_MESH = "PARALLELISM_CONFIG_"
_ALONE = "accelerate launch started processes that do not know each other"


@dataclass(frozen=True)
class Key:
    """A key of the configuration, and the environment variable that carries it."""

    name: str
    variable: str
    does: str  # what the program will do, as the variable spells it
    advice: str

    def refusal(self, environment: Mapping[str, str]) -> str | None:
        stated = environment.get(self.variable)
        if stated is None or stated.lower() == self.does.lower():
            return None
        return (
            f"the configuration of accelerate launch says {self.name}: {stated}, this program has "
            f"{self.does or 'none'}; {self.advice}, or change the configuration"
        )


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
    for key in keys(args, expected, bf16, world, local_world, environment):
        refusal = key.refusal(environment)
        if refusal is not None:
            raise Refused(refusal)


def keys(
    args: Args, expected: Expected, bf16: bool, world: int, local_world: int, environment: Mapping[str, str]
) -> list[Key]:
    """All that the environment may say, with what the program does."""
    known = [
        Key("use_cpu", "ACCELERATE_USE_CPU", "false", _ALONE),
        Key("mixed_precision", _MARK, "bf16" if bf16 else "no", f"give {'--no-bf16' if bf16 else '--bf16'}"),
        Key("dynamo_backend", "ACCELERATE_DYNAMO_BACKEND", "no", "--recipe fast compiles"),
        Key("deepspeed_config", "ACCELERATE_USE_DEEPSPEED", "false", "DeepSpeed is not used here"),
        Key("megatron_lm_config", "ACCELERATE_USE_MEGATRON_LM", "false", "Megatron is not used here"),
        Key(
            "gradient_accumulation_steps",
            "ACCELERATE_GRADIENT_ACCUMULATION_STEPS",
            str(args.gradient_accumulation),
            "give --gradient-accumulation",
        ),
    ]
    stated = "true" if environment.get("ACCELERATE_USE_FSDP", "false").lower() == "true" else "false"
    shards = "true" if expected.sharded else "false"
    if stated != shards:
        kinds = {"true": "FSDP", "false": "another one than FSDP"}
        raise Refused(
            f"the configuration of accelerate launch says distributed_type {kinds[stated]}, this program trains "
            f"{expected.kind}: take the configuration of training/accelerate with its name"
        )
    return known + (
        _of_fsdp(args) + _of_mesh(args, expected, world, local_world, environment) if expected.sharded else []
    )


def _of_fsdp(args: Args) -> list[Key]:
    def flag(value: bool) -> str:
        return str(value).lower()

    fixed = {  # the defaults of accelerate, and what FSDP2 here always does
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
        "activation_checkpointing_offload": ("false", "--cpu-offload moves the states"),
    }
    known = [Key(f"fsdp_{name}", f"FSDP_{name.upper()}", does, advice) for name, (does, advice) in fixed.items()]
    own = {
        "reshard_after_forward": (args.reshard_after_forward, "--no-reshard-after-forward"),
        "offload_params": (args.cpu_offload, "--cpu-offload"),
        "activation_checkpointing": (args.activation_checkpointing, "--activation-checkpointing"),
    }
    for name, (does, option) in own.items():
        given = does != (name == "reshard_after_forward")  # whether the option was given
        advice = f"leave out {option}" if given else f"give {option}"
        known.append(Key(f"fsdp_{name}", f"FSDP_{name.upper()}", flag(does), advice))
    return known


def _of_mesh(args: Args, expected: Expected, world: int, local_world: int, environment: Mapping[str, str]) -> list[Key]:
    has_mesh = environment.get("ACCELERATE_USE_PARALLELISM_CONFIG", "false").lower() == "true"
    hybrid = expected.kind == "hsdp"
    if hybrid and not has_mesh:
        raise Refused(
            "the configuration of accelerate launch says no parallelism_config, so FSDP over all ranks; this program "
            "was given --hsdp: leave it out, or take training/accelerate/hsdp_2node_16gpu.yaml"
        )
    if not has_mesh:
        return []
    group = (args.shard_size or local_world) if hybrid else world
    replicas, shards = str(world // group), str(group)
    advice = "shards are the ranks of a node, or --shard-size" if hybrid else "--hsdp makes replicas"
    sizes = {"dp_replicate": (replicas, advice), "dp_shard": (shards, advice)}
    sizes |= {name: ("1", "tensor and context parallelism are not trained here") for name in ("tp", "cp", "sp")}
    return [
        Key(f"parallelism_config_{name}_size", f"{_MESH}{name.upper()}_SIZE", does, why)
        for name, (does, why) in sizes.items()
    ]
