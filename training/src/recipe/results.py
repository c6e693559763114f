"""From what the ranks gathered to the two records that go to disk: run_args.json and metrics.json."""

import contextlib
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import accelerate
import torch
import transformers
import transport
from bringup.kernel.errors import RecordError
from bringup.kernel.records import read_record, write_record
from bringup.training.formulae import flops, overlap, pace
from bringup.training.records import (
    ON,
    REFERENCE_ARGS,
    REFERENCE_METRICS,
    Environment,
    Memory,
    MemoryCheck,
    ObservedStrategy,
    RunArgs,
    Standstill,
    Startup,
    TrainMetrics,
    scaling_against,
    summary_of,
)

from recipe import GIB, communication, fast, group, meter
from recipe.arguments import Args
from recipe.memory import Footprint
from recipe.strategy import Expected, shard_group

MAX_GRAD_NORM = 1.0
OPTIMIZER = "adamw_torch_fused"
ALLOCATOR = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
LIBRARIES = {"torch": torch, "transformers": transformers, "accelerate": accelerate}
DRIVER = Path("/proc/driver/nvidia/version")  # NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  …
DRIVER_VERSION = re.compile(r"Kernel Module.*?\s(\d+(?:\.\d+)+)\s")


@dataclass(frozen=True)
class RankResult:
    """What one rank brings to the end of a run."""

    step_times_s: list[float]  # per optimizer step
    own_times_s: dict[str, list[float]]  # fetch, forward, optimizer: per optimizer step
    standstill: Standstill
    memory: Memory  # peaks
    environment: dict[str, list[str]]  # as environment_of_rank
    sent: dict[str, int]  # bytes, by interface
    states_bytes: int  # parameters, gradients and optimizer held after the first step
    startup_s: tuple[float, float, float, float, float]  # in the order of records.Startup
    checksum: float  # sum over the parameters the rank stores
    steps_unix_s: list[float]  # begin of the first step, then the end of each
    rows: list[int]  # dataset rows it trained on, repeats included


def run_args(args: Args, expected: Expected, hosts: list[str], bf16: bool, tuning: dict[str, str]) -> RunArgs:
    """Return the resolved arguments for the disk: an allow-list, nothing of the environment. `hosts`: index = rank."""
    as_given = {name: value for name, value in vars(args).items() if name in RunArgs.model_fields}
    as_resolved = {
        "strategy": expected.kind,
        "nodes": len(set(hosts)),
        "ranks_per_node": hosts.count(hosts[0]),
        "world_size": len(hosts),
        "max_grad_norm": MAX_GRAD_NORM,
        "optimizer": OPTIMIZER,
        "master_dtype": "float32",
        "compute_dtype": "bfloat16" if bf16 else "float32",
        "compile": tuning.get(fast.COMPILE) == ON,
        "tuning": tuning,
        "reshard_after_forward": args.reshard_after_forward if expected.sharded else None,
        "shard_size": shard_group(hosts, args.shard_size) if expected.kind == "hsdp" else None,
        "profiled_steps": args.profiled_steps if len(hosts) > 1 else 0,
        "device": "cuda" if group.CUDA else "cpu",
        **{name: module.__version__ for name, module in LIBRARIES.items()},
    }
    return RunArgs(**as_given | as_resolved)


def carried_by(observed: ObservedStrategy, sent: list[dict[str, int]], steps: int) -> tuple[str | None, str | None]:
    """Return (what carried the gradients between hosts, None), or (None, why it is not known).

    `sent`: bytes per interface, index = rank. Every strategy sends at least a byte per parameter and step from a host.
    """
    if observed.backend != "gloo":
        return None, "one rank sends nothing" if observed.backend == "none" else "NCCL's log in raw/ names it"
    least = 0 if len(set(observed.hosts)) == 1 else observed.parameters * steps
    return transport.carriers(sent, least)


def train_metrics(
    resolved: RunArgs,
    observed: ObservedStrategy,
    predicted: Footprint,
    ranks: list[RankResult],
    wall_time_s: float,
    efficiency_of: Callable[[float], flops.Efficiency],
    **known: Any,
) -> TrainMetrics:
    """Make metrics.json. `ranks`: index = rank; `efficiency_of`: that of tokens/s of one rank; `known`: further fields.
    Times are of this run's own steps, losses and rows also of those before a resume."""
    world = len(ranks)
    tokens_per_step = resolved.global_batch * resolved.sequence_length
    own_steps = len(ranks[0].step_times_s)
    warmup_steps = min(resolved.warmup_steps, own_steps - 1)
    tokens_per_rank = own_steps * tokens_per_step // world
    steady = pace.steady_window([rank.step_times_s for rank in ranks], observed.hosts, warmup_steps, tokens_per_step)
    tokens_per_s = steady.tokens_per_s
    carrier, no_carrier = carried_by(observed, [rank.sent for rank in ranks], own_steps)
    rank_times = pace.rank_times([(rank.step_times_s, rank.own_times_s) for rank in ranks], warmup_steps)
    efficiency = efficiency_of(tokens_per_s / world)
    per_token = efficiency.flops_per_token
    slowest_startup_s = [max(part) for part in zip(*(rank.startup_s for rank in ranks), strict=True)]
    rows = [row for rank in ranks for row in rank.rows]
    return TrainMetrics(
        wall_time_s=wall_time_s,
        approx_tokens_per_rank=tokens_per_rank,
        approx_tokens_per_s_per_rank=tokens_per_rank / wall_time_s,
        **{name: getattr(resolved, name) for name in ("world_size", "model", "dataset", *LIBRARIES)},
        gpu0=gpu_name(),
        fsdp=observed.kind in ("fsdp", "hsdp"),
        bf16=resolved.compute_dtype == "bfloat16",
        observed=observed,
        tokens_per_step=tokens_per_step,
        tokens_per_s=tokens_per_s,
        tokens_per_s_per_rank=tokens_per_s / world,
        step_time_s=steady.step_time_s,
        startup=Startup(**dict(zip(Startup.model_fields, slowest_startup_s, strict=True))),
        memory=meter.memory([rank.memory for rank in ranks]),
        parameter_checksums=[rank.checksum for rank in ranks],
        sample_count=len(rows),
        sample_distinct=len(set(rows)),
        **vars(efficiency),
        tflops_per_rank=per_token and per_token * tokens_per_s / world / 1e12,
        environment=environment_of_all([rank.environment for rank in ranks]),
        steps_s=steady.steps_s,
        steps_unix_s=ranks[0].steps_unix_s[1:],
        window_unix_s={
            host: [rank.steps_unix_s[warmup_steps], rank.steps_unix_s[-1]]
            for rank, host in reversed(list(zip(ranks, observed.hosts, strict=True)))  # the first rank of a node counts
        },
        rank_times_s=rank_times,
        straggler=pace.straggler(rank_times, observed.hosts),
        standstills=[rank.standstill for rank in ranks],
        transport=carrier,
        transport_reason=no_carrier,
        model_shape=predicted.shape,
        memory_check=memory_check(predicted, ranks),
        **overlap.fields(None, communication.NOT_ENDED),
        **known,
    )


def write(run_dir: Path, resolved: RunArgs, metrics: TrainMetrics, *, replace: bool = False) -> None:
    """Write metrics.json, with the head that its fields give. `bringup open` keeps a run on one GPU here, if any."""
    reference = None
    with contextlib.suppress(RecordError):
        reference = (
            read_record(run_dir / REFERENCE_ARGS, RunArgs),
            read_record(run_dir / REFERENCE_METRICS, TrainMetrics),
        )
    summary = summary_of(resolved, metrics, scaling_against(resolved, metrics, reference))
    write_record(run_dir / "metrics.json", metrics.model_copy(update={"summary": summary}), replace=replace)


def memory_check(predicted: Footprint, ranks: list[RankResult]) -> MemoryCheck:
    """Put prediction and measurement side by side, of the rank that holds most."""
    states = [rank.states_bytes for rank in ranks]
    allocated = [gib for rank in ranks if (gib := rank.memory.device_allocated_gib) is not None]
    return MemoryCheck(
        states_measured_bytes=max(states),
        states_predicted_bytes=predicted.states.total,
        states_rank=states.index(max(states)),
        peak_measured_bytes=int(max(allocated) * GIB) if allocated else None,
        peak_predicted_bytes=None if predicted.peak is None else predicted.peak.total,
        peak_least_bytes=predicted.states.total,
        reason=predicted.reason,
    )


def environment_of_rank() -> dict[str, list[str]]:
    """Return the fields of records.Environment, of this rank and its node. What is not there is an empty list."""
    return {
        "cuda": [str(torch.version.cuda)] if group.CUDA else [],
        "nccl": [".".join(map(str, torch.cuda.nccl.version()))] if group.CUDA else [],
        "driver": DRIVER_VERSION.findall(DRIVER.read_text())[:1] if DRIVER.exists() else [],
        "gpus": [torch.cuda.get_device_name(group.DEVICE)] if group.CUDA else [],
        "allocator": [os.environ[name] for name in ALLOCATOR if name in os.environ],
        "nics": transport.active_rdma_devices() or sorted(transport.interface_bytes()),
    }


def gpu_name() -> str | None:
    """Return the name of the model of this rank's GPU; None without one."""
    return torch.cuda.get_device_name(group.DEVICE) if group.CUDA else None


def environment_of_all(ranks: list[dict[str, list[str]]]) -> Environment:
    """Return each distinct value once: two drivers in a list are two drivers in the run."""
    return Environment(**{name: sorted({value for rank in ranks for value in rank[name]}) for name in ranks[0]})
