"""Every key that `accelerate launch` passes on is what the programs do, or is refused in one line that names it."""

import os
import sys
from typing import Any

import pytest
from accelerate.commands.launch import _validate_launch_command, launch_command_parser
from accelerate.utils.launch import prepare_multi_gpu_env
from bringup.training.records import RunArgs
from loops import case_for_each, for_each
from programs import ROOT
from recipe import arguments, results
from recipe import strategy as accelerated
from recipe.strategy import Expected, Refused

DDP, FSDP, HSDP = (Expected(kind, min_hosts=1, max_hosts=None) for kind in ("ddp", "fsdp", "hsdp"))
SHAPES = {  # configuration -> the program's promise, ranks, ranks of a node
    "ddp_1node_8gpu": (DDP, 8, 8),
    "fsdp_1node_8gpu": (FSDP, 8, 8),
    "hsdp_2node_16gpu": (HSDP, 16, 8),
}
# what torchrun, torch or accelerate itself does with it, or what the model shows
ELSEWHERE = {
    *("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "ACCELERATE_DEBUG_MODE", "ACCELERATE_CPU_AFFINITY"),
    *(f"PARALLELISM_CONFIG_{kind}_SIZE" for kind in ("CP", "SP", "TP")),
    # of a backend, or of a size, that is refused
    *(f"ACCELERATE_DYNAMO_{key}" for key in ("MODE", "USE_FULLGRAPH", "USE_DYNAMIC", "USE_REGIONAL_COMPILATION")),
    *("PARALLELISM_CONFIG_CP_BACKEND", "PARALLELISM_CONFIG_SP_BACKEND"),
    # of no key of training/accelerate
    *("ACCELERATE_USE_CPU", "FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "FSDP_TRANSFORMER_CLS_TO_WRAP"),
    # of FSDP version 1, which is refused
    *("FSDP_SHARDING_STRATEGY", "FSDP_MIN_NUM_PARAMS", "FSDP_BACKWARD_PREFETCH", "FSDP_FORWARD_PREFETCH"),
    *("FSDP_USE_ORIG_PARAMS", "FSDP_SYNC_MODULE_STATES"),
}
pytestmark = pytest.mark.filterwarnings("default")


def launched(stem: str, *options: str) -> dict[str, str]:
    """The variables that accelerate launch would set for a rank."""
    words = ["--config_file", str(ROOT / f"training/accelerate/{stem}.yaml"), "--main_process_ip", "n0", *options]
    # port 0: another one may be in use here
    arguments = launch_command_parser().parse_args([*words, "--main_process_port", "0", "program.py"])
    launch, _, _ = _validate_launch_command(arguments)
    before = dict(os.environ)
    return {name: value for name, value in prepare_multi_gpu_env(launch).items() if before.get(name) != value}


def program(*options: str) -> arguments.Args:
    saved, sys.argv = sys.argv, ["train_fsdp_multi_node.py", "--check", *options]
    try:
        return arguments.parse("", takes_hsdp=True, sharded=True)
    finally:
        sys.argv = saved


def test_the_mesh_of_another_shard_size_is_that_of_the_configuration(monkeypatch):
    monkeypatch.setattr(arguments, "WORLD", 16)
    options = ("--hsdp", "--global-batch", "16", "--shard-size", "4")
    sizes = ("--parallelism_config_dp_replicate_size", "4", "--parallelism_config_dp_shard_size", "4")
    check("hsdp_2node_16gpu", launched("hsdp_2node_16gpu", *sizes), *options)
    with pytest.raises(Refused, match="dp_replicate_size: 2, this program has 4"):
        check("hsdp_2node_16gpu", launched("hsdp_2node_16gpu"), *options)


def check(stem: str, environment: dict[str, str], *options: str, bf16: bool = True) -> None:
    accelerated.refuse_what_is_ignored(asked(stem, *options, bf16=bf16), environment)


def asked(stem: str, *options: str, bf16: bool = True) -> RunArgs:
    """As a program resolves them."""
    expected, world, local_world = SHAPES[stem]
    hosts = [f"n{rank // local_world}" for rank in range(world)]
    return results.run_args(program(*options), expected, hosts, bf16, {})


@for_each(*SHAPES)
def test_the_configurations_say_what_the_programs_do(stem):
    check(stem, launched(stem))


@for_each(*SHAPES)
def test_every_variable_that_accelerate_sets_is_looked_at(stem):
    assert set(launched(stem, "--debug", "--gpu_ids", "0,1")) <= accelerated.promised(asked(stem)).keys() | ELSEWHERE


@for_each(
    ("ddp_1node_8gpu", "mixed_precision", "no", "bf16"),
    ("ddp_1node_8gpu", "mixed_precision", "fp16", "bf16"),
    ("ddp_1node_8gpu", "dynamo_backend", "INDUCTOR", "no"),
    ("fsdp_1node_8gpu", "fsdp_reshard_after_forward", "false", "true"),
    ("fsdp_1node_8gpu", "fsdp_offload_params", "true", "false"),
    ("fsdp_1node_8gpu", "fsdp_activation_checkpointing", "true", "false"),
    ("fsdp_1node_8gpu", "fsdp_version", "1", "2"),
    ("fsdp_1node_8gpu", "fsdp_auto_wrap_policy", "NO_WRAP", "TRANSFORMER_BASED_WRAP"),
    ("fsdp_1node_8gpu", "fsdp_state_dict_type", "FULL_STATE_DICT", "SHARDED_STATE_DICT"),
    ("fsdp_1node_8gpu", "fsdp_cpu_ram_efficient_loading", "true", "false"),
    ("hsdp_2node_16gpu", "parallelism_config_dp_shard_size", "4", "8"),
)
def test_what_the_program_would_not_do_is_refused_in_one_line_that_names_the_key(stem, key, stated, does):
    with pytest.raises(Refused) as refused:
        check(stem, launched(stem, f"--{key}", stated.lower() if key == "dynamo_backend" else stated))
    assert f"says {key}: {stated}, this program has {does}; change the one or" in str(refused.value)
    assert "\n" not in str(refused.value)


@case_for_each(
    ("fsdp_1node_8gpu", "ddp_1node_8gpu", "use_fsdp: false, this program has true"),
    ("ddp_1node_8gpu", "fsdp_1node_8gpu", "use_fsdp: true, this program has false; .* for ddp\\)"),
    ("hsdp_2node_16gpu", "fsdp_1node_8gpu", "use_parallelism_config: false, this program has true"),
    ("fsdp_1node_8gpu", "hsdp_2node_16gpu", "use_parallelism_config: true, this program has false"),
)
def test_the_configuration_of_another_strategy_is_refused(stem, of, says):
    with pytest.raises(Refused, match=says):
        check(stem, launched(of))


def test_a_program_that_torchrun_started_is_left_alone():
    environment: dict[str, Any] = {"FSDP_VERSION": "1"}
    check("fsdp_1node_8gpu", environment)
