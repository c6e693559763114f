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
    if _MARK not in environment:
        return
    for variable, (does, advice) in promised(asked).items():
        stated = environment.get(variable, ABSENT.get(variable, does))
        if stated.lower() != does.lower():
            name = variable.removeprefix("ACCELERATE_").lower()
            raise Refused(
                f"the configuration of accelerate launch says {name}: {stated}, this program has {does or 'none'}; "
                f"{advice}, or change the configuration"
            )


def promised(asked: RunArgs) -> dict[str, tuple[str, str]]:
    """Return variables of accelerate launch -> (what the program does, as the variable spells it; what to do)."""

    def switch(on: bool, option: str, default: bool) -> tuple[str, str]:
        return str(on).lower(), f"{'give' if on == default else 'leave out'} {option}"

    own = f"take the configuration of training/accelerate for {asked.strategy}"
    bf16, sharded = asked.compute_dtype == "bfloat16", asked.strategy in ("fsdp", "hsdp")
    of_all = {
        "ACCELERATE_USE_FSDP": (str(sharded).lower(), own),
        "ACCELERATE_USE_CPU": ("false", "it starts processes that do not know each other"),
        _MARK: ("bf16" if bf16 else "no", f"give {'--no-bf16' if bf16 else '--bf16'}"),
        "ACCELERATE_DYNAMO_BACKEND": ("no", "--recipe fast compiles"),
        "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": (str(asked.gradient_accumulation), "give --gradient-accumulation"),
    }
    if not sharded:
        return of_all
    shards = asked.shard_size or asked.world_size
    mesh = {"DP_REPLICATE": (str(asked.world_size // shards), own), "DP_SHARD": (str(shards), own)}
    mesh |= dict.fromkeys(("CP", "TP", "SP"), ("1", "a rank computes whole rows here"))
    of_fsdp = {
        "VERSION": ("2", "version 1 is another implementation"),
        "AUTO_WRAP_POLICY": ("TRANSFORMER_BASED_WRAP", "each decoder layer is a group"),
        "TRANSFORMER_CLS_TO_WRAP": ("", "the model names its layers; leave it out"),
        "STATE_DICT_TYPE": ("SHARDED_STATE_DICT", "every rank writes its own part"),
        "CPU_RAM_EFFICIENT_LOADING": ("false", "every rank makes its shard from the seed, or reads it"),
        "OFFLOAD_PARAMS": ("false", "states stay on the device"),
        "ACTIVATION_CHECKPOINTING_OFFLOAD": ("false", "activations stay on the device"),
        "RESHARD_AFTER_FORWARD": switch(bool(asked.reshard_after_forward), "--no-reshard-after-forward", default=True),
        "ACTIVATION_CHECKPOINTING": switch(asked.activation_checkpointing, "--activation-checkpointing", default=False),
    }
    return {
        **of_all,
        **({"ACCELERATE_USE_PARALLELISM_CONFIG": ("true", own)} if asked.shard_size else {}),
        **{f"FSDP_{name}": each for name, each in of_fsdp.items()},
        **{f"PARALLELISM_CONFIG_{name}_SIZE": each for name, each in mesh.items()},
    }
