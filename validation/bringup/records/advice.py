"""What `bringup advise` predicts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from bringup.records.base import NonNegative, Record, Versioned


class PredictedStrategy(Record):
    """What `bringup advise` computed for one strategy, per rank by default. null: not known, and `unknown` says why."""

    strategy: Literal["single", "ddp", "zero2", "fsdp", "hsdp"]
    ranks: int = Field(ge=1)
    shards: int = Field(default=1, ge=1)  # ranks that share one copy of the states
    rows: int = Field(ge=1)  # per rank and micro-step
    accumulation: int = Field(ge=1)
    peak_parts_gib: dict[str, float]  # at the moment of the step at which the sum is largest
    peak_gib: NonNegative  # PyTorch's max_memory_allocated
    states_gib: NonNegative  # parameters, gradients and optimizer between two steps
    outside_gib: NonNegative  # left for the CUDA context and NCCL
    fits: bool | None
    host_gib: NonNegative = 0  # of a node, by all of its ranks, while they read a model of the hub
    sent_inside_gb: NonNegative  # by one GPU to its neighbour in the node, per optimizer step
    leaving_node_gb: NonNegative  # per node and optimizer step
    compute_s: NonNegative | None
    communication_s: NonNegative | None
    step_s: list[float] | None  # [everything overlaps, nothing does]
    tokens_per_s: list[float] | None  # all ranks; [nothing overlaps, everything does]
    sources: list[str]
    unknown: list[str]


class Advice(Versioned):
    """`advice.json`, printed by `bringup advise --json`. Computed, not measured."""

    model: str
    parameters: int = Field(gt=0)
    nodes: int = Field(ge=1)
    gpus_per_node: int = Field(ge=1)
    sequence_length: int = Field(ge=1)
    global_batch: int = Field(ge=1)  # rows per optimizer step, all ranks
    compute_dtype: Literal["bfloat16", "float32"]
    reduce_dtype: Literal["bfloat16", "float32"]
    activation_checkpointing: bool
    profile: str
    gpu_memory_gib: NonNegative | None
    mfu: NonNegative | None
    assumptions: list[str]  # each number that went in, with its source
    strategies: list[PredictedStrategy]
    use: Literal["single", "ddp", "zero2", "fsdp", "hsdp"] | None  # null: none can be named
    why: str
    command: str | None
