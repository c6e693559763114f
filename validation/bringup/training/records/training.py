"""What a training writes: its checkpoints, its resolved arguments and its metrics."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator

from bringup.kernel.records.base import NonNegative, Record, Value, Versioned, known
from bringup.training.records.advice import ModelShape
from bringup.training.records.summary import Summary


class CheckpointFile(Record):
    """A file of a checkpoint as it was when it was written."""

    name: Annotated[str, Field(pattern=r"^\.?[A-Za-z0-9_][A-Za-z0-9._-]*$")]  # never a path: who resumes opens it
    rank: int = Field(ge=0)  # that wrote it
    bytes: int = Field(ge=0)


class Checkpoint(Versioned):
    """`checkpoint.json`, the last file of a checkpoint: a folder without it is an unfinished save, not a checkpoint."""

    run: str  # folder name of the run that wrote it
    step: int = Field(ge=1)
    world_size: int = Field(ge=1)
    strategy: str
    # RunArgs without what may differ between strategies: who resumes has to have the same
    recipe: dict[str, Value | dict[str, str] | None]
    files: list[CheckpointFile]
    # parameter or optimizer tensor -> its bits, summed so that sharding makes no difference
    fingerprints: dict[str, int]
    loss: list[float]  # of every step so far
    grad_norm: list[float]

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class CheckpointTimes(Record):
    """What checkpoints cost this run, and what was read back. Seconds of the slowest rank; bytes of all files. Under
    DDP one copy is written and every rank reads all of it; the read rate is the bytes of one copy per second."""

    bytes: int = Field(gt=0)  # of one
    write_s: float | None  # of the last; null when none was written
    write_gib_per_s: float | None
    read_gib_per_s: float | None  # null when none was read
    # tensors that were compared with what was saved, over all ranks; null when none was read
    compared: int | None = Field(ge=0)
    differing: int | None = Field(ge=0)
    after_steps: list[int]  # after which one was written
    checksum_s: float | None  # of the last that was written: fingerprints, in no other time here
    predicted_bytes: int | None = Field(gt=0)  # of one, before step 1
    predicted_reason: str | None  # why null


class Resumed(Record):
    """Where this run began: not at step 1."""

    run: str  # folder name of the run that wrote the checkpoint
    step: int = Field(ge=1)  # last step before this run's own
    world_size: int = Field(ge=1)
    passed_over: list[str]  # newer checkpoints that were damaged, and how


# --- arguments and metrics

ARGUMENTS = known("arguments", dict[str, list[str]])
"""What a difference in them means -> arguments of a training."""


class RunArgs(Versioned):
    """`run_args.json`: the resolved arguments of a training run. An allow-list without environment, tokens, home paths.
    Fields in STRATEGY may differ between two runs that are compared; all the others may not."""

    BY_EYE: ClassVar[bool] = True
    STRATEGY: ClassVar[frozenset[str]] = frozenset(ARGUMENTS["strategy"])

    entrypoint: str
    strategy: Literal["single", "ddp", "fsdp", "hsdp"]
    nodes: int = Field(ge=1)
    ranks_per_node: int = Field(ge=1)
    world_size: int = Field(ge=1)
    model: str
    dataset: str
    sequence_length: int = Field(ge=1)
    global_batch: int = Field(ge=1)  # rows (sequences) per optimizer step, all ranks
    per_device_batch: int = Field(ge=1)
    gradient_accumulation: int = Field(ge=1)
    sync_each_batch: bool  # gradients are reduced in every micro-step, and not in the last one of a step only
    steps: int = Field(ge=1)
    warmup_steps: int = Field(ge=0)  # left out of the steady window
    learning_rate: float = Field(gt=0)
    max_grad_norm: float = Field(gt=0)
    optimizer: str
    seed: int
    master_dtype: str
    compute_dtype: str
    reduce_dtype: str
    attention: str
    recipe: Literal["plain", "fast"]  # the same training, as training/src/recipe/fast says
    tuning: dict[str, str]  # what a recipe changes -> ON, or why it could not
    compile: bool
    dataloader_workers: int = Field(ge=0)
    reshard_after_forward: bool | None
    shard_size: int | None = Field(ge=2)  # ranks of an HSDP shard group; null: no HSDP
    ddp_bucket_cap_mb: int | None = Field(default=None, ge=1)  # MiB that DDP reduces at once; null: torch's 25
    activation_checkpointing: bool
    save_steps: int = Field(ge=0)
    rehearse_resume: bool  # half way through, the state is wiped and read back from a checkpoint
    timeout_s: int = Field(gt=0)
    profiled_steps: int = Field(ge=0)  # after the training, in which the time of collectives is read
    device: Literal["cpu", "cuda"]
    torch: str
    transformers: str
    accelerate: str

    @property
    def hsdp_group(self) -> int:
        """Return the ranks of a shard group, if this is HSDP: those of a node unless another size was requested."""
        return self.shard_size or self.ranks_per_node

    @property
    def hosts_of_group(self) -> int:
        """Count the hosts that such a shard group needs: one, or the whole ones that it fills."""
        return max(1, self.hsdp_group // self.ranks_per_node)


class StepTime(Record):
    """Seconds per optimizer step in the steady window, over all ranks; from end to end of a step, with data loading."""

    p50: float = Field(gt=0)
    p95: float = Field(gt=0)
    max: float = Field(gt=0)
    window_steps: int = Field(ge=1)
    slowest_rank: int = Field(ge=0)  # highest median step time
    slowest_rank_node: str


class RankTimes(Record):
    """Seconds per optimizer step in the steady window; index = rank.

    A synchronous step takes all ranks equally long, so step_* hardly differ. fetch, forward and optimizer are medians
    of a rank's own work, in which it waits for nobody: getting its rows (host time), the forward pass inside a few of
    the model's blocks, and the update of the parameters (device time on a GPU).
    """

    step_p50: list[float]
    step_p95: list[float]
    step_max: list[float]
    fetch: list[float]
    forward: list[float]
    optimizer: list[float]


class Straggler(Record):
    """The rank whose own work takes longest."""

    rank: int = Field(ge=0)
    node: str
    slowdown: float = Field(gt=0)  # its own time / the (lower) median of all ranks' own times
    part: Literal["fetch", "forward", "optimizer"]  # that is furthest above the median


class Standstill(Record):
    """The longest time in which a rank itself stood still in a step after the warm-up. part process: its heartbeat
    stopped, which a rank that waits for another one keeps; else: this part of its own work took so much longer than its
    median."""

    seconds: NonNegative  # 0: never for a second
    step: int | None = Field(default=None, ge=1)
    part: Literal["process", "fetch", "forward", "optimizer"] | None = None
    cpu_s: NonNegative | None = None  # that the process used meanwhile; null but for part process


class Startup(Record):
    """Seconds, the slowest rank's. Never inside a throughput number."""

    import_s: NonNegative
    process_group_s: NonNegative
    first_collective_s: NonNegative
    load_s: NonNegative
    first_step_s: NonNegative


class Memory(Record):
    """Peak per rank, maximum over ranks. Device counters are null on a machine without a GPU."""

    host_rss_gib: NonNegative
    device_allocated_gib: NonNegative | None
    device_reserved_gib: NonNegative | None
    device_active_gib: NonNegative | None = None  # allocated, and freed while a stream still used it
    device_total_gib: NonNegative | None = None  # of the smallest card
    allocation_retries: int | None = Field(default=None, ge=0)  # over all ranks: a full card, whose cache was emptied


class Environment(Record):
    """What a training ran on. Each distinct value once, over all ranks; empty: there is none."""

    cuda: list[str]  # that torch was built for
    nccl: list[str]  # that torch is linked with
    driver: list[str]
    gpus: list[str]  # names of the models
    nics: list[str]  # RDMA devices with an active port; where there is none, network interfaces
    allocator: list[str] = Field(default_factory=list)  # options of torch's caching allocator that were set


class ObservedStrategy(Record):
    """What really ran, read from the trained model and inside the communicator; an argument is not evidence."""

    kind: Literal["single", "ddp", "fsdp", "hsdp", "unknown"]
    distributed_type: str
    wrapper: str
    placements: list[str]
    mesh: list[list[int]] | None  # rows are shard groups, columns replicate
    # of the decoder layers' groups; null where none is sharded, or where they differ
    reshard_after_forward: bool | None
    master_dtype: str  # of the parameters as stored
    compute_dtype: str | None  # what the first linear layer gave out in the first step; null: no step was made
    reduce_dtype: str  # of gradients between ranks
    loss_dtype: str | None  # null: no step was made
    # the first of several micro-steps reduced its gradients; null: one rank, one micro-step, or no step
    sync_each_batch: bool | None
    decoder_layers: int = Field(ge=0)
    layer_class: str | None = None  # of which FSDP makes a group each; null: no layer
    recomputed_layers: int | None  # of which ran again in the backward pass of the first step; null: no step was made
    parameters: int = Field(gt=0)
    parameters_local_max: int = Field(gt=0)  # elements held by the rank that holds most
    backend: str  # gloo, nccl, none
    hosts: list[str] = Field(min_length=1)  # index = rank
    devices: list[str]  # index = rank; device UUID, or cpu

    @model_validator(mode="after")
    def _one_mesh_of_these_ranks(self) -> "ObservedStrategy":
        if len(self.devices) != len(self.hosts):
            raise ValueError(f"{len(self.hosts)} hosts and {len(self.devices)} devices")
        if self.mesh is not None:
            ranks = sorted(rank for row in self.mesh for rank in row)
            if ranks != list(range(len(self.hosts))) or len({len(row) for row in self.mesh}) != 1:
                raise ValueError(f"mesh {self.mesh} is not a grid of the {len(self.hosts)} ranks")
        return self

    def scattered(self, asked: RunArgs) -> list[list[int]]:
        """Return shard groups on more hosts than their requested size needs: one, or the whole nodes that it fills."""
        if self.kind != "hsdp" or self.mesh is None:
            return []
        return [row for row in self.mesh if len({self.hosts[rank] for rank in row}) > asked.hosts_of_group]

    def differs_from(self, asked: RunArgs) -> list[str]:
        """Say how the variant differs from the requested one: `reduce_dtype: asked bfloat16, observed float32`. What
        only a step can show is left out as long as none was made."""
        names = ["reshard_after_forward", "master_dtype", "reduce_dtype"]
        pairs = [(name, getattr(asked, name), getattr(self, name)) for name in names]
        if self.kind == "hsdp" and self.mesh is not None:
            pairs.append(("shard_size", asked.hsdp_group, len(self.mesh[0])))
        if self.recomputed_layers is not None:
            wanted = self.decoder_layers if asked.activation_checkpointing else 0
            if asked.sync_each_batch or self.sync_each_batch is not None:
                pairs.append(("sync_each_batch", asked.sync_each_batch, self.sync_each_batch))
            pairs += [
                ("compute_dtype", asked.compute_dtype, self.compute_dtype),
                ("loss_dtype", "float32", self.loss_dtype),
                (f"recomputed layers of {self.decoder_layers}", wanted, self.recomputed_layers),
            ]
        return [f"{name}: asked {wanted}, observed {seen}" for name, wanted, seen in pairs if wanted != seen]


class MemoryCheck(Record):
    """Memory of one rank: predicted by bringup.training.formulae.memory, and observed. Two different quantities.

    states: parameters, gradients and optimizer between optimizer.step() and zero_grad(), counted from the tensors of
    the rank that holds most, on a CPU and on a GPU. peak: PyTorch's max_memory_allocated over the steps, null without a
    GPU. least: of the peak, what no kernel can save; a counter below it did not count.
    """

    states_measured_bytes: int = Field(ge=0)
    states_predicted_bytes: int = Field(gt=0)
    states_rank: int = Field(ge=0)
    peak_measured_bytes: int | None = Field(ge=0)
    peak_predicted_bytes: int | None = Field(gt=0)
    peak_least_bytes: int = Field(gt=0)
    reason: str | None  # why the peak is not predicted


class CollectiveTime(Record):
    """One kind of collective in a profiled step: bytes by formula, time as it was measured. Calls that are not of
    parameters or gradients (the norm, say: some bytes) are among calls and seconds."""

    operation: Literal["all_reduce", "all_gather", "reduce_scatter"]
    over: Literal["node", "nodes", "replicas", "all"]
    ranks: int = Field(ge=2)  # in a group
    calls: NonNegative  # per step
    calls_predicted: int = Field(ge=1)
    message_bytes: float = Field(gt=0)  # of the full tensor, mean of the calls
    sent_bytes: float = Field(gt=0)  # by a rank in a step, in a ring
    seconds: float = Field(gt=0)  # per step, of the rank that waited least for the others
    busbw_gb_per_s: float = Field(gt=0)  # as nccl-tests defines it


class Communication(Record):
    """Communication in a step, read by torch.profiler in `steps` steps after the training; index = rank."""

    steps: int = Field(ge=1)
    step_s: float = Field(gt=0)  # of a profiled step, median of the ranks: longer than step_time_s, for the profiler
    total_s: list[float]  # in which a collective was under way, with the wait for slower ranks
    exposed_s: list[float]  # of which the rank computed nothing
    collectives: list[CollectiveTime]
    collectives_reason: str | None = None  # why there is none


class TrainMetrics(Versioned):
    """`metrics.json`. The summary first, then the ten names that older results have; the rest makes them meaningful.

    tokens_per_s is over ALL ranks in the steady window; tokens_per_s_per_rank is that divided by world_size.
    approx_tokens_per_s_per_rank divides by wall time, start-up included: kept for old comparisons, no throughput."""

    BY_EYE: ClassVar[bool] = True
    summary: Summary | None = None  # each number of it is one of the fields below; null: written before there was one
    wall_time_s: float = Field(gt=0)
    approx_tokens_per_rank: int = Field(ge=0)
    approx_tokens_per_s_per_rank: NonNegative
    world_size: int = Field(ge=1)  # observed: members of the process group
    gpu0: str | None
    torch: str
    model: str
    dataset: str
    fsdp: bool
    bf16: bool
    observed: ObservedStrategy
    tokens_per_step: int = Field(gt=0)
    tokens_per_s: float = Field(gt=0)
    tokens_per_s_per_rank: float = Field(gt=0)
    step_time_s: StepTime
    startup: Startup
    memory: Memory
    steps_done: int = Field(ge=1)
    loss: list[float]  # index = optimizer step - 1
    grad_norm: list[float]
    parameter_checksums: list[float]  # index = rank; sum over the parameters the rank holds
    # the same before a rehearsal read them back, which makes replicas alike again; null: there was none
    parameter_checksums_rehearsed: list[float] | None = None
    sample_count: int = Field(ge=0)  # rows consumed, all ranks
    sample_distinct: int = Field(ge=0)  # of which distinct
    mfu: NonNegative | None
    mfu_reason: str | None  # why null
    flops_per_token: NonNegative | None  # training, full-attention convention; null where model_shape says why
    peak_tflops: NonNegative | None  # dense bf16 of one device; null when unknown
    peak_source: str | None
    tflops_per_rank: NonNegative | None  # achieved, of the model's own FLOPs in the full convention
    environment: Environment
    transformers: str
    accelerate: str
    steps_s: list[float]  # each step of the steady window, from last rank to last rank
    # when each step of this run ended, by the clock of rank 0's host; a GPU may be behind
    steps_unix_s: list[float] = Field(min_length=1)
    # node -> begin and end of the steady window by its own clock, so that its samples can be joined with it
    window_unix_s: dict[str, Annotated[list[float], Field(min_length=2, max_length=2)]]
    rank_times_s: RankTimes
    straggler: Straggler | None  # null with one rank
    standstills: list[Standstill]  # index = rank
    transport: str | None  # between hosts, by the bytes that left them: tcp:eth0; under nccl its own log says it
    transport_reason: str | None  # why null
    checkpoint: CheckpointTimes | None
    checkpoint_reason: str | None  # why null
    resumed: Resumed | None  # null: from step 1. loss, grad_norm and samples hold the steps before it too
    model_shape: ModelShape  # of the model that was built
    memory_check: MemoryCheck
    communication_share: float | None = Field(ge=0, le=1)  # exposed / profiled step, median of the ranks
    communication: Communication | None
    communication_reason: str | None  # why null

    @model_validator(mode="after")
    def _one_value_per_rank(self) -> "TrainMetrics":
        ranks = {
            "world_size": self.world_size,
            "observed.hosts": len(self.observed.hosts),
            "parameter_checksums": len(self.parameter_checksums),
            "standstills": len(self.standstills),
            **{f"rank_times_s.{name}": len(values) for name, values in self.rank_times_s},
        }
        if (seen := self.communication) is not None:
            ranks |= {"communication.total_s": len(seen.total_s), "communication.exposed_s": len(seen.exposed_s)}
        if len(set(ranks.values())) != 1:
            raise ValueError(", ".join(f"{name} has {count} ranks" for name, count in ranks.items()))
        return self
