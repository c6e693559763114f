"""Every record that goes to disk, and the only code that reads or writes them.

Strict on read: an unknown field, a missing field, NaN, a wrong type or version is a RecordError that names file and field.
Written once: a part file, then a link that fails when the name is taken. Only derived files may be replaced.
Observers (training) and the judge share this file and nothing else. Units are in the names; GB is 10^9, GiB is 2^30.
"""

from __future__ import annotations

import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

SCHEMA_VERSION: Literal[1] = 1

Value = bool | int | float | str | list[str]
"""What can be observed. None is not among them: an unknown is written as value null with a reason."""

NonNegative = Annotated[float, Field(ge=0)]


class RecordError(Exception):
    """A file that is not the record it should be. The message is one line: file, field, what is wrong."""


class Record(BaseModel):
    """Base of all records. Frozen, closed, and without NaN or infinity."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Versioned(Record):
    """A record that is a file of its own."""

    schema_version: Literal[1] = SCHEMA_VERSION


class Outcome(StrEnum):
    """Worst last. A known fault is actionable, so fail outranks incomplete; reports print both counts."""

    PASS = "pass"  # noqa: S105  # an outcome, not a password
    WARN = "warn"
    INCOMPLETE = "incomplete"
    FAIL = "fail"

    @property
    def rank(self) -> int:
        return list(Outcome).index(self)

    @property
    def exit_code(self) -> int:
        """0 pass (and warn), 1 the cluster failed a gate, 2 we could not tell."""
        return {Outcome.PASS: 0, Outcome.WARN: 0, Outcome.INCOMPLETE: 2, Outcome.FAIL: 1}[self]


def worst(outcomes: list[Outcome]) -> Outcome:
    """The worst of the outcomes. Nothing to judge is incomplete, never a pass."""
    return max(outcomes, key=lambda outcome: outcome.rank, default=Outcome.INCOMPLETE)


class NotApplicable(Record):
    """A gate that this profile declares meaningless here. The report prints it: a skip is never silent."""

    gate: str
    reason: str = Field(min_length=1)


class Run(Versioned):
    """`run.json`, written before anything runs: what will be judged, from what was REQUESTED."""

    phase: str
    name: str
    nodes: list[str] = Field(min_length=1)
    gpus_per_node: int = Field(ge=1)
    ranks_per_node: int = Field(ge=1)
    profile: str
    profile_sha256: str  # of profile.yaml beside it
    planned: dict[str, list[str]]  # gate -> subjects
    not_applicable: list[NotApplicable]
    argv: list[str]
    git_commit: str | None
    git_dirty: bool | None
    slurm_job_id: str | None
    slurm_restart_count: int = Field(ge=0)
    opened_at: str  # UTC, ISO 8601
    continues: str | None = None  # the folder beside this one in which the same job began, before Slurm requeued it


class Closed(Versioned):
    """`closed.json`: the phase script came to its end. A run without it (SIGKILL, node lost, time limit) is incomplete."""

    exit_code: int
    closed_at: str
    files: dict[str, str] | None = None  # SHA-256 of all that is evidence then; null: closed by an older version


class Continued(Versioned):
    """`continued.json`, in the folder of an attempt that Slurm requeued: where the job went on."""

    run: str


class Observation(Record):
    """One thing seen. `value` null means looked for and not found out; then `why` says so. Beside a value, why is a remark."""

    quantity: str  # discovery.gpu.count
    subject: str  # job, n0, n0/gpu1, n0/rank1, n0->n1
    value: Value | None
    unit: str
    evidence: str  # raw/inventory.out:12
    why: str | None = None


class Observations(Versioned):
    """`observations.json`, derived from raw/."""

    observations: list[Observation]
    problems: list[str]  # raw files that could not be read as what they should be


class Verdict(Record):
    """One planned (gate, subject) pair, judged."""

    gate: str
    subject: str
    outcome: Outcome
    observed: str  # as a reader would say it; "nothing" when no evidence arrived
    expected: str
    evidence: str
    cause: str | None = None
    fix: str


class Sign(Record):
    """A line in a log that bears the signature of a known fault. It decides nothing; it says where to look."""

    signature: str  # id in signatures.py
    evidence: str  # raw/launch.log:6, its first line
    line: str
    count: int = Field(ge=1)


class Verdicts(Versioned):
    """`verdicts.json`, derived: safe to delete and rebuild."""

    phase: str
    run: str
    profile: str  # that it was judged against
    outcome: Outcome
    verdicts: list[Verdict]
    not_applicable: list[NotApplicable]
    notes: list[str]
    signs: list[Sign] = []


class Step(Record):
    """One phase of a playbook run."""

    phase: str
    folder: str | None  # of its run, from the repository root; null when it did not run
    outcome: Outcome
    blocks: bool  # whether phases that need this one would mean nothing
    why_not_run: str | None = None
    seconds: NonNegative


class Playbook(Versioned):
    """`playbook.json`: what `bringup run` did, rewritten after every phase."""

    name: str
    nodes: list[str]
    profile: str
    planned: list[str]  # phases
    left_out: list[str]  # phases that these nodes cannot run, with the reason
    steps: list[Step]


class DrillResult(Record):
    """One fault that was made on purpose, and what the judge said about it. null: it was not performed, and `why` says so."""

    drill: str
    fault: str
    phase: str
    gate: str  # that must say so
    subject: str
    outcome: Outcome  # that it must give
    performed: bool
    applicable: bool = True  # false: it would mean nothing on this cluster
    why: str | None = None
    detected: bool | None = None  # the gate gave that outcome on some subject, and the screen said so
    right_subject: bool | None = None  # on the declared subjects, and on no other
    right_cause: bool | None = None  # with the declared words
    observed: str | None = None  # as the verdict says it
    seconds_to_detect: NonNegative | None = None  # from the fault in place to the verdict
    seconds: NonNegative  # all of it: making it, undoing it, waiting until the cluster is well
    false_alarms: list[str] = Field(default_factory=list)  # verdicts that failed and that this fault does not explain
    evidence: str | None = None  # folder of the run, beside drill.json

    @model_validator(mode="after")
    def _told_or_why(self) -> DrillResult:
        told = None not in (self.detected, self.right_subject, self.right_cause, self.seconds_to_detect)
        if self.performed is not told or (not self.performed and not self.why):
            raise ValueError(f"drill {self.drill} needs what was seen when performed, and otherwise why it was not")
        return self

    @property
    def found(self) -> bool:
        return bool(self.detected and self.right_subject and self.right_cause)


class HealthyRound(Record):
    """All phases on a cluster without a fault. Whatever does not pass is a false alarm."""

    number: int = Field(ge=1)
    verdicts: int = Field(ge=0)
    false_alarms: list[str]
    seconds: NonNegative
    evidence: list[str]


class DrillReport(Versioned):
    """`drill.json`: what `bringup drill` did, rewritten after every drill."""

    name: str
    place: Literal["local-cluster", "anywhere"]
    profile: str | None  # anywhere: of the cluster; on the local cluster each run names its own
    git_commit: str | None
    opened_at: str
    planned: list[str]  # drills
    healthy_planned: int = Field(ge=0)
    results: list[DrillResult]
    healthy: list[HealthyRound]


class Tuning(Record):
    """One thing that --recipe fast chose, or could not."""

    what: str
    on: bool
    why: str


class RunArgs(Versioned):
    """`run_args.json`: the resolved arguments of a training run. An allow-list: no environment, no tokens, no home paths.

    Fields in STRATEGY may differ between two runs that are compared; all the others may not.
    """

    STRATEGY: ClassVar[frozenset[str]] = frozenset(
        {"schema_version", "entrypoint", "strategy", "nodes", "ranks_per_node", "world_size", "per_device_batch",
         "gradient_accumulation", "reshard_after_forward", "reduce_dtype", "cpu_offload", "activation_checkpointing", "save_steps",
         "rehearse_resume", "timeout_s"}
    )

    entrypoint: str
    strategy: Literal["single", "ddp", "fsdp", "hsdp"]
    nodes: int = Field(ge=1)
    ranks_per_node: int = Field(ge=1)
    world_size: int = Field(ge=1)
    model: str
    dataset: str
    sequence_length: int = Field(ge=1)
    packing: bool  # documents end to end in full rows; without it one document per row, padded
    global_batch: int = Field(ge=1)  # rows (sequences) per optimizer step, all ranks
    per_device_batch: int = Field(ge=1)
    gradient_accumulation: int = Field(ge=1)
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
    recipe: Literal["plain", "fast"] = "plain"  # fast: the same training, computed faster (training/src/fast.py)
    tuning: list[Tuning] = []  # what fast chose
    compile: bool
    dataloader_workers: int = Field(ge=0)
    reshard_after_forward: bool | None
    cpu_offload: bool
    activation_checkpointing: bool
    save_steps: int = Field(ge=0)
    rehearse_resume: bool = False  # half way through, the state is wiped and read back from a checkpoint
    timeout_s: int = Field(gt=0)
    device: Literal["cpu", "cuda"]
    torch: str
    transformers: str
    accelerate: str


class StepTime(Record):
    """Seconds per optimizer step in the steady window, over all ranks (end of step to end of step, data loading inside)."""

    p50: float = Field(gt=0)
    p95: float = Field(gt=0)
    max: float = Field(gt=0)
    window_steps: int = Field(ge=1)
    slowest_rank: int = Field(ge=0)  # highest median step time
    slowest_rank_node: str


class RankTimes(Record):
    """Seconds per optimizer step in the steady window; index = rank.

    A synchronous step takes all ranks equally long, so step_* hardly differ. fetch, forward and optimizer are medians of a rank's
    own work, in which it waits for nobody: getting its rows (host time), the forward pass inside a few of the model's blocks,
    and the update of the parameters (device time on a GPU).
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
    max_rank: int = Field(ge=0)


class ObservedStrategy(Record):
    """What really ran, read from the trained model and inside the communicator; an argument is no evidence."""

    kind: Literal["single", "ddp", "fsdp", "hsdp", "unknown"]
    distributed_type: str
    wrapper: str
    placements: list[str]
    mesh: list[list[int]] | None  # rows are shard groups, columns replicate
    mesh_dims: list[str] | None
    reshard_after_forward: bool | None  # of the decoder layers' groups; null where none is sharded, or where they differ
    master_dtype: str  # of the parameters as stored
    compute_dtype: str | None  # what the first linear layer gave out in the first step; null: no step was made
    reduce_dtype: str  # of gradients between ranks
    loss_dtype: str | None  # null: no step was made
    cpu_offload: bool  # the policy of every group
    decoder_layers: int = Field(ge=0)
    recomputed_layers: int | None  # of which ran again in the backward pass of the first step; null: no step was made
    parameters: int = Field(gt=0)
    parameters_local_max: int = Field(gt=0)  # elements held by the rank that holds most
    backend: str  # gloo, nccl, none
    hosts: list[str] = Field(min_length=1)  # index = rank
    devices: list[str]  # index = rank; device UUID, or cpu

    @model_validator(mode="after")
    def _one_mesh_of_these_ranks(self) -> ObservedStrategy:
        if len(self.devices) != len(self.hosts):
            raise ValueError(f"{len(self.hosts)} hosts and {len(self.devices)} devices")
        if self.mesh is not None:
            ranks = sorted(rank for row in self.mesh for rank in row)
            if ranks != list(range(len(self.hosts))) or len({len(row) for row in self.mesh}) != 1:
                raise ValueError(f"mesh {self.mesh} is no grid of the {len(self.hosts)} ranks")
        return self

    def differs_from(self, asked: RunArgs) -> list[str]:
        """Where the variant is not the one that was asked for: `cpu_offload: asked True, observed False`. Empty: it is.

        What only a step can show is left out as long as none was made.
        """
        names = ["reshard_after_forward", "master_dtype", "reduce_dtype", "cpu_offload"]
        pairs = [(name, getattr(asked, name), getattr(self, name)) for name in names]
        if self.recomputed_layers is not None:
            wanted = self.decoder_layers if asked.activation_checkpointing else 0
            pairs += [("compute_dtype", asked.compute_dtype, self.compute_dtype),
                      ("loss_dtype", "float32", self.loss_dtype),
                      (f"recomputed layers of {self.decoder_layers}", wanted, self.recomputed_layers)]
        return [f"{name}: asked {wanted}, observed {seen}" for name, wanted, seen in pairs if wanted != seen]


class CheckpointFile(Record):
    """A file of a checkpoint as it was when it was written."""

    name: str
    rank: int = Field(ge=0)  # that wrote it
    bytes: int = Field(ge=0)
    crc32: int = Field(ge=0)


class Checkpoint(Versioned):
    """`checkpoint.json`, the last file of a checkpoint: a folder without it is an unfinished save and counts as nothing."""

    run: str  # folder name of the run that wrote it
    step: int = Field(ge=1)
    world_size: int = Field(ge=1)
    strategy: str
    recipe: dict[str, Any]  # RunArgs without what may differ between strategies: who resumes has to have the same
    files: list[CheckpointFile]
    fingerprints: dict[str, int]  # parameter or optimizer tensor -> its bits, summed so that sharding makes no difference
    scheduler: dict[str, Any]
    loss: list[float]  # of every step so far
    grad_norm: list[float]
    written_at: str

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


class CheckpointTimes(Record):
    """What checkpoints cost this run, and what came back of them. Seconds are those of the slowest rank; bytes of all files.

    Under DDP every rank reads all of a checkpoint and one copy is written; reading gives the bytes of one copy per second.
    """

    written: int = Field(ge=0)  # complete checkpoints
    bytes: int = Field(gt=0)  # of one
    write_s: float | None  # of the last; null when none was written
    write_gib_per_s: float | None
    read_s: float | None  # null when none was read
    read_gib_per_s: float | None
    compared: int | None = Field(ge=0)  # tensors that were compared with what was saved, over all ranks; null when none was read
    differing: int | None = Field(ge=0)


class Resumed(Record):
    """Where this run began: not at step 1."""

    run: str  # folder name of the run that wrote the checkpoint
    step: int = Field(ge=1)  # last step before this run's own
    world_size: int = Field(ge=1)
    random_state: bool  # restored; with another number of ranks there is nothing to restore it from
    passed_over: list[str]  # newer checkpoints that were damaged, and how


class MemoryCheck(Record):
    """Memory of one rank as bringup.memory predicts it from the arguments, and as it was. Two quantities, not to be confused.

    states: parameters, gradients and optimizer between optimizer.step() and zero_grad(), counted from the tensors of the rank that
    holds most, on a CPU as on a GPU. peak: PyTorch's max_memory_allocated over the steps, null without a GPU.
    """

    states_measured_bytes: int = Field(ge=0)
    states_predicted_bytes: int | None = Field(gt=0)
    states_rank: int = Field(ge=0)
    peak_measured_bytes: int | None = Field(ge=0)
    peak_predicted_bytes: int | None = Field(gt=0)
    reason: str | None  # why nothing is predicted


class TrainMetrics(Versioned):
    """`metrics.json`. The first ten names are the ones people already compare; the rest makes them meaningful.

    tokens_per_s is over ALL ranks in the steady window; tokens_per_s_per_rank is that divided by world_size.
    approx_tokens_per_s_per_rank divides by wall time, start-up included: kept for old comparisons, no throughput.
    """

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
    sample_count: int = Field(ge=0)  # rows consumed, all ranks
    sample_distinct: int = Field(ge=0)  # of which distinct
    mfu: NonNegative | None
    mfu_reason: str | None  # why null
    flops_per_token: NonNegative | None  # training, full-attention convention; null for an unknown model type
    peak_tflops: NonNegative | None  # dense bf16 of one device; null when unknown
    peak_source: str | None
    padded_tokens_per_s: NonNegative = 0.0  # of padding, which is in no other number of tokens per second
    flops_per_token_causal: NonNegative | None = None  # half of the attention square
    flops_per_token_linear: NonNegative | None = None  # no attention
    mfu_causal: NonNegative | None = None
    steps_s: list[float] | None = None  # each step of the steady window, until its last rank; null: older than the measurement
    rank_times_s: RankTimes | None = None
    straggler: Straggler | None = None  # null with one rank
    transport: str | None = None  # between hosts, by the bytes that left them: tcp:eth0; under nccl its own log says it
    transport_reason: str | None = None  # why null
    checkpoint: CheckpointTimes | None = None
    checkpoint_reason: str | None = "this run is older than the measurement"  # why null
    resumed: Resumed | None = None  # null: from step 1. loss, grad_norm and samples hold the steps before it too
    memory_check: MemoryCheck | None = None  # null: this run is older than the prediction

    @model_validator(mode="after")
    def _one_value_per_rank(self) -> TrainMetrics:
        ranks = {"world_size": self.world_size, "observed.hosts": len(self.observed.hosts),
                 "parameter_checksums": len(self.parameter_checksums)}
        if self.rank_times_s is not None:
            ranks |= {f"rank_times_s.{name}": len(values) for name, values in self.rank_times_s}
        if len(set(ranks.values())) != 1:
            raise ValueError(", ".join(f"{name} has {count} ranks" for name, count in ranks.items()))
        return self


class PredictedStrategy(Record):
    """What `bringup advise` computed for one strategy. null: unknown, and `unknown` says why. Per rank unless said otherwise."""

    strategy: Literal["single", "ddp", "zero2", "fsdp", "hsdp"]
    ranks: int = Field(ge=1)
    rows: int = Field(ge=1)  # per rank and micro-step
    accumulation: int = Field(ge=1)
    peak_parts_gib: dict[str, float]  # at the moment of the step at which the sum is largest
    peak_gib: NonNegative  # PyTorch's max_memory_allocated
    states_gib: NonNegative  # parameters, gradients and optimizer between two steps
    outside_gib: NonNegative  # left for the CUDA context and NCCL
    fits: bool | None
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


R = TypeVar("R", bound=Record)


def read_record(path: Path, kind: type[R]) -> R:
    """Read `path` as `kind`. Raises RecordError (one line) when it is missing, cut off, or not that record."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RecordError(f"{path}: cannot be read as {kind.__name__}: {error}") from error
    try:
        return kind.model_validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "the file"
        raise RecordError(f"{path}: not a valid {kind.__name__}: {field}: {first['msg']}") from error


def write_record(path: Path, record: Record, *, replace: bool = False) -> None:
    """Write atomically. Without `replace` an existing file is a RecordError: evidence is never overwritten."""
    text = json.dumps(record.model_dump(mode="json"), indent=1, allow_nan=False) + "\n"
    write_text(path, text, replace=replace)


def write_text(path: Path, text: str, *, replace: bool = False) -> None:
    """Write atomically; a reader sees the old file, the new file, or none, never half of one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        if replace:
            part.replace(path)
        else:
            os.link(part, path)  # atomic on NFS too, and fails when the name is taken
    except FileExistsError as error:
        raise RecordError(f"{path}: already written; a record is never overwritten") from error
    except OSError as error:  # of a full disk Python does not say which file it was
        raise OSError(error.errno, f"cannot be written: {error.strerror}", str(path)) from error
    finally:
        part.unlink(missing_ok=True)


def as_json(record: Record) -> dict[str, Any]:
    """The record as plain data."""
    return record.model_dump(mode="json")
