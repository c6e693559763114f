"""`accelerate launch` says how to train through its environment, the programs' options say it too: both have to agree.

What trains in the end is read from the model in any case.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from recipe.arguments import Args
from recipe.strategy import Expected, Refused

_MARK = "ACCELERATE_MIXED_PRECISION"  # accelerate launch always sets it
ABSENT = {"ACCELERATE_USE_FSDP": "false", "ACCELERATE_USE_PARALLELISM_CONFIG": "false"}  # what it means


def refuse_what_is_ignored(
    args: Args,
    expected: Expected,
    bf16: bool,
    world: int,
    local_world: int,
    environment: Mapping[str, str] = os.environ,
) -> None:
    """bf16: as it is resolved. Raises Refused where accelerate launch, if it started the program, says otherwise."""
    if _MARK not in environment:
        return
    for variable, (does, advice) in promised(args, expected, bf16, world, local_world).items():
        stated = environment.get(variable, ABSENT.get(variable, does))
        if stated.lower() != does.lower():
            name = variable.removeprefix("ACCELERATE_").lower()
            raise Refused(
                f"the configuration of accelerate launch says {name}: {stated}, this program has {does or 'none'}; "
                f"{advice}, or change the configuration"
            )


def promised(args: Args, expected: Expected, bf16: bool, world: int, local_world: int) -> dict[str, tuple[str, str]]:
    """Variable of accelerate launch -> (what the program does, as the variable spells it; what to do)."""

    def switch(on: bool, option: str, default: bool) -> tuple[str, str]:
        return str(on).lower(), f"{'give' if on == default else 'leave out'} {option}"

    own = f"take the configuration of training/accelerate for {expected.kind}"
    of_all = {
        "ACCELERATE_USE_FSDP": (str(expected.sharded).lower(), own),
        "ACCELERATE_USE_CPU": ("false", "it starts processes that do not know each other"),
        _MARK: ("bf16" if bf16 else "no", f"give {'--no-bf16' if bf16 else '--bf16'}"),
        "ACCELERATE_DYNAMO_BACKEND": ("no", "--recipe fast compiles"),
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": (str(args.gradient_accumulation), "give --gradient-accumulation"),
    }
    if not expected.sharded:
        return of_all
    hybrid = expected.kind == "hsdp"
    shards = (args.shard_size or local_world) if hybrid else world
    mesh = {"DP_REPLICATE": (str(world // shards), own), "DP_SHARD": (str(shards), own)}
    mesh |= dict.fromkeys(("CP", "TP", "SP"), ("1", "a rank computes whole rows here"))
    of_fsdp = {
        "VERSION": ("2", "version 1 is another implementation"),
        "AUTO_WRAP_POLICY": ("TRANSFORMER_BASED_WRAP", "each decoder layer is a group"),
        "TRANSFORMER_CLS_TO_WRAP": ("", "the model names its layers; leave it out"),
        "STATE_DICT_TYPE": ("SHARDED_STATE_DICT", "every rank writes its own part"),
        "CPU_RAM_EFFICIENT_LOADING": ("false", "every rank makes its shard from the seed, or reads it"),
        "OFFLOAD_PARAMS": ("false", "states stay on the device"),
        "ACTIVATION_CHECKPOINTING_OFFLOAD": ("false", "activations stay on the device"),
        "RESHARD_AFTER_FORWARD": switch(args.reshard_after_forward, "--no-reshard-after-forward", default=True),
        "ACTIVATION_CHECKPOINTING": switch(args.activation_checkpointing, "--activation-checkpointing", default=False),
    }
    return {
        **of_all,
        **({"ACCELERATE_USE_PARALLELISM_CONFIG": ("true", own)} if hybrid else {}),
        **{f"FSDP_{name}": each for name, each in of_fsdp.items()},
        **{f"PARALLELISM_CONFIG_{name}_SIZE": each for name, each in mesh.items()},
    }
