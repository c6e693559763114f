"""From what the ranks gathered to the two records that go to disk: run_args.json and metrics.json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import accelerate
import flops
import group
import meter
import torch
import transformers
from arguments import Args
from bringup import memory as predicted
from bringup.models import ModelError, job_of, shape_of
from bringup.records import MemoryCheck, ObservedStrategy, RunArgs, Startup, TrainMetrics
from strategy import Expected

MAX_GRAD_NORM = 1.0
OPTIMIZER = "adamw_torch_fused"


@dataclass(frozen=True)
class RankResult:
    """What one rank brings to the end of a run."""

    step_times_s: list[float]  # per optimizer step
    memory_gib: tuple[float, float | None, float | None]  # peaks: host, device allocated, device reserved
    states_bytes: int  # parameters, gradients and optimizer held after the first step
    startup_s: tuple[float, float, float, float, float]  # in the order of records.Startup
    checksum: float  # sum over the parameters the rank stores
    rows: list[int]  # dataset rows it trained on, repeats included


def run_args(args: Args, expected: Expected, hosts: list[str], bf16: bool) -> RunArgs:
    """The resolved arguments as they go to disk: an allow-list, nothing from the environment. `hosts`: index = rank."""
    return RunArgs(
        entrypoint=args.entrypoint,
        strategy=expected.kind,
        nodes=len(set(hosts)),
        ranks_per_node=hosts.count(hosts[0]),
        world_size=len(hosts),
        model=args.model,
        dataset=args.dataset,
        sequence_length=args.sequence_length,
        packing=args.packing,
        global_batch=args.global_batch,
        per_device_batch=args.per_device_batch,
        gradient_accumulation=args.gradient_accumulation,
        steps=args.steps,
        warmup_steps=args.warmup_steps,
        learning_rate=args.learning_rate,
        max_grad_norm=MAX_GRAD_NORM,
        optimizer=OPTIMIZER,
        seed=args.seed,
        master_dtype="float32",
        compute_dtype="bfloat16" if bf16 else "float32",
        reduce_dtype=args.reduce_dtype,
        attention=args.attention,
        compile=False,
        dataloader_workers=args.dataloader_workers,
        reshard_after_forward=args.reshard_after_forward if expected.sharded else None,
        cpu_offload=args.cpu_offload,
        activation_checkpointing=args.activation_checkpointing,
        save_steps=args.save_steps,
        timeout_s=args.timeout_s,
        device="cuda" if group.CUDA else "cpu",
        torch=torch.__version__,
        transformers=transformers.__version__,
        accelerate=accelerate.__version__,
    )


def train_metrics(
    resolved: RunArgs,
    observed: ObservedStrategy,
    config: Any,
    ranks: list[RankResult],
    losses: list[float],
    grad_norms: list[float],
    wall_time_s: float,
) -> TrainMetrics:
    """metrics.json. `ranks`: index = rank; `losses`, `grad_norms`: per optimizer step, of the global batch."""
    world = len(ranks)
    gpu = torch.cuda.get_device_name(group.DEVICE) if group.CUDA else None
    tokens_per_step = resolved.global_batch * resolved.sequence_length
    tokens_per_rank = len(losses) * tokens_per_step // world
    steady = meter.steady_window([rank.step_times_s for rank in ranks], observed.hosts, resolved.warmup_steps, tokens_per_step)
    efficiency = flops.efficiency(config, resolved.sequence_length, steady.tokens_per_s / world, gpu, resolved.compute_dtype)
    slowest_startup_s = [max(part) for part in zip(*(rank.startup_s for rank in ranks), strict=True)]
    rows = [row for rank in ranks for row in rank.rows]
    return TrainMetrics(
        wall_time_s=wall_time_s,
        approx_tokens_per_rank=tokens_per_rank,
        approx_tokens_per_s_per_rank=tokens_per_rank / wall_time_s,
        world_size=world,
        gpu0=gpu,
        torch=torch.__version__,
        model=resolved.model,
        dataset=resolved.dataset,
        fsdp=observed.kind in ("fsdp", "hsdp"),
        bf16=resolved.compute_dtype == "bfloat16",
        observed=observed,
        tokens_per_step=tokens_per_step,
        tokens_per_s=steady.tokens_per_s,
        tokens_per_s_per_rank=steady.tokens_per_s / world,
        step_time_s=steady.step_time_s,
        startup=Startup(**dict(zip(Startup.model_fields, slowest_startup_s, strict=True))),
        memory=meter.memory([rank.memory_gib for rank in ranks]),
        steps_done=len(losses),
        loss=losses,
        grad_norm=grad_norms,
        parameter_checksums=[rank.checksum for rank in ranks],
        sample_count=len(rows),
        sample_distinct=len(set(rows)),
        mfu=efficiency.mfu,
        mfu_reason=efficiency.mfu_reason,
        flops_per_token=efficiency.flops_per_token,
        peak_tflops=efficiency.peak_tflops,
        peak_source=efficiency.peak_source,
        memory_check=memory_check(resolved, config, ranks),
    )


def memory_check(resolved: RunArgs, config: Any, ranks: list[RankResult]) -> MemoryCheck:
    """Prediction and measurement side by side, of the rank that holds most."""
    states = [rank.states_bytes for rank in ranks]
    allocated = [rank.memory_gib[1] for rank in ranks if rank.memory_gib[1] is not None]
    states_predicted = peak_predicted = reason = None
    try:
        shape, job = shape_of(config.to_dict(), resolved.model), job_of(resolved)
        states_predicted, peak_predicted = predicted.states(shape, job.shards).total, predicted.peak(shape, job).total
    except ModelError as error:
        reason = str(error)
    return MemoryCheck(
        states_measured_bytes=max(states),
        states_predicted_bytes=states_predicted,
        states_rank=states.index(max(states)),
        peak_measured_bytes=int(max(allocated) * meter.GIB) if allocated else None,
        peak_predicted_bytes=peak_predicted,
        reason=reason,
    )
