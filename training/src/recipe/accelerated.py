"""`accelerate launch` says how to train through its environment, the programs' options say it too: both have to agree.

What trains in the end is read from the model in any case.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from bringup.records import RunArgs

from recipe.strategy import Refused

_MARK = "ACCELERATE_MIXED_PRECISION"  # accelerate launch always sets it
ABSENT = {"ACCELERATE_USE_FSDP": "false", "ACCELERATE_USE_PARALLELISM_CONFIG": "false"}  # what it means


def refuse_what_is_ignored(asked: RunArgs, environment: Mapping[str, str] = os.environ) -> None:
    """Raise Refused where accelerate launch, if it started the program, says otherwise."""
    for variable, does in promised(asked).items() if _MARK in environment else ():
        stated = environment.get(variable, ABSENT.get(variable, does))
        if stated.lower() != does.lower():
            name = variable.removeprefix("ACCELERATE_").lower()
            raise Refused(
                f"the configuration of accelerate launch says {name}: {stated}, this program has {does or 'none'}; "
                f"change the one or the option (training/accelerate has one for {asked.strategy})"
            )


def promised(asked: RunArgs) -> dict[str, str]:
    """Return variables of accelerate launch -> what the program does, as the variable spells it."""
    sharded = asked.strategy in ("fsdp", "hsdp")
    of_all = {
        "ACCELERATE_USE_FSDP": str(sharded).lower(),
        "ACCELERATE_USE_CPU": "false",  # it starts processes that do not know each other
        _MARK: "bf16" if asked.compute_dtype == "bfloat16" else "no",
        "ACCELERATE_DYNAMO_BACKEND": "no",
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": str(asked.gradient_accumulation),
    }
    if not sharded:
        return of_all
    shards = asked.shard_size or asked.world_size
    mesh = {"DP_REPLICATE": asked.world_size // shards, "DP_SHARD": shards, "CP": 1, "TP": 1, "SP": 1}
    of_fsdp = {
        "VERSION": "2",
        "AUTO_WRAP_POLICY": "TRANSFORMER_BASED_WRAP",
        "TRANSFORMER_CLS_TO_WRAP": "",  # the model names its layers
        "STATE_DICT_TYPE": "SHARDED_STATE_DICT",
        "CPU_RAM_EFFICIENT_LOADING": "false",
        "OFFLOAD_PARAMS": "false",
        "ACTIVATION_CHECKPOINTING_OFFLOAD": "false",
        "RESHARD_AFTER_FORWARD": str(asked.reshard_after_forward).lower(),
        "ACTIVATION_CHECKPOINTING": str(asked.activation_checkpointing).lower(),
    }
    return {
        **of_all,
        **({"ACCELERATE_USE_PARALLELISM_CONFIG": "true"} if asked.shard_size else {}),
        **{f"FSDP_{name}": does for name, does in of_fsdp.items()},
        **{f"PARALLELISM_CONFIG_{name}_SIZE": str(size) for name, size in mesh.items()},
    }
