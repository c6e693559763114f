"""What is computed of a training before it runs: the shape of its model, and what `bringup advise` predicts."""

from typing import Annotated, Literal

from pydantic import Field

from bringup.kernel.records.base import NonNegative, Record, Versioned

Tensor = tuple[int, int]
"""Rows and columns; FSDP cuts rows. A vector of n is (n, 1). Of more dimensions, all but the first are one."""


class Blocks(Record):
    """Decoder blocks that are alike. tensors: of one of them, as they are stored."""

    count: int = Field(ge=1)
    tensors: tuple[Tensor, ...]


class Attention(Record):
    """Layers whose attention is alike."""

    layers: int = Field(ge=1)
    heads: int = Field(ge=1)
    kv_heads: int | None = Field(ge=1)  # null: the configuration names none
    head_size: int = Field(ge=1)
    window: int | None = None  # tokens a position looks back; null: all


class ModelShape(Record):
    """A decoder: blocks between an embedding and a tail. Each tensor once, in float32 and whole, however it is sharded.

    The groups are those that accelerate gives to fully_shard. Made from a built model (training/src/recipe), or from a
    configuration where there is no model yet (bringup.training.formulae.models).
    """

    name: str
    hidden: int = Field(ge=1)
    vocabulary: int = Field(ge=1)
    tied: bool  # the LM head is the embedding, which is then in the tail
    embedding: tuple[Tensor, ...]
    blocks: tuple[Blocks, ...]
    tail: tuple[Tensor, ...]  # final norm and LM head, gathered together and kept until the backward pass
    rest: tuple[Tensor, ...] = ()  # in no group of its own: positions, projections beside the embedding
    matmul_parameters: int = Field(ge=0)  # weights of linear layers, the LM head among them, tied or not
    attention: tuple[Attention, ...]
    not_covered: str | None = None  # why its FLOPs, and what its blocks keep for the backward pass, are not known

    @property
    def parameters(self) -> int:
        """Count the parameters, tied ones once."""
        blocks = sum(blocks.count * elements(blocks.tensors) for blocks in self.blocks)
        return blocks + sum(elements(group) for group in (self.embedding, self.tail, self.rest))

    @property
    def layers(self) -> int:
        return sum(blocks.count for blocks in self.blocks)


def elements(tensors: tuple[Tensor, ...]) -> int:
    return sum(rows * columns for rows, columns in tensors)


Fits = Literal["fits", "may not fit", "does not fit"]
"""May not: by less than the prediction may be wrong."""


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
    fragments_gib: NonNegative  # left for what the allocator holds and cannot use
    outside_gib: NonNegative  # left for the CUDA context and NCCL
    fits: Fits | None
    sent_inside_gb: NonNegative  # by one GPU to its neighbour in the node, per optimizer step
    leaving_node_gb: NonNegative  # per node and optimizer step
    compute_s: list[float] | None  # [at the highest MFU, at the lowest]
    communication_s: NonNegative | None
    step_s: list[float] | None  # [highest MFU and everything overlaps, lowest and nothing does]
    tokens_per_s: list[float] | None  # all ranks; [lowest MFU and nothing overlaps, highest and everything does]
    sources: list[str]
    unknown: list[str]

    @property
    def needed_gib(self) -> float:
        return self.peak_gib + self.fragments_gib + self.outside_gib


class SaveInterval(Record):
    """How often to save a checkpoint on these nodes, and what failures and saves then leave of the time. Computed."""

    failures_per_node_day: NonNegative
    failure_s: NonNegative  # mean time between two failures of the job
    save_s: NonNegative  # that a save holds the training up
    save_source: str
    restart_s: NonNegative  # from a failure until training goes on
    interval_s: NonNegative  # of training, between two saves
    goodput: Annotated[float, Field(ge=0, le=1)]  # share of the time that is training which is kept


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
    fast: bool = False  # with --recipe fast: the loss in chunks
    profile: str
    gpu_memory_gib: NonNegative | None
    mfu: list[float] | None  # [lowest, highest]
    assumptions: list[str]  # each number that went in, with its source
    strategies: list[PredictedStrategy]
    use: Literal["single", "ddp", "zero2", "fsdp", "hsdp"] | None  # null: none can be named
    why: str
    command: str | None
    checkpoints: SaveInterval | None = None  # null: no rate of failures was given
