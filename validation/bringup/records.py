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


class Closed(Versioned):
    """`closed.json`: the phase script came to its end. A run without it (SIGKILL, node lost, time limit) is incomplete."""

    exit_code: int
    closed_at: str


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


class Verdicts(Versioned):
    """`verdicts.json`, derived: safe to delete and rebuild."""

    phase: str
    run: str
    profile: str  # that it was judged against
    outcome: Outcome
    verdicts: list[Verdict]
    not_applicable: list[NotApplicable]
    notes: list[str]


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


class RunArgs(Versioned):
    """`run_args.json`: the resolved arguments of a training run. An allow-list: no environment, no tokens, no home paths.

    Fields in STRATEGY may differ between two runs that are compared; all the others may not.
    """

    STRATEGY: ClassVar[frozenset[str]] = frozenset(
        {"schema_version", "entrypoint", "strategy", "nodes", "ranks_per_node", "world_size", "per_device_batch",
         "gradient_accumulation", "reshard_after_forward", "reduce_dtype", "activation_checkpointing", "save_steps",
         "timeout_s"}
    )

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
    compile: bool
    dataloader_workers: int = Field(ge=0)
    reshard_after_forward: bool | None
    activation_checkpointing: bool
    save_steps: int = Field(ge=0)
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

    @model_validator(mode="after")
    def _one_value_per_rank(self) -> TrainMetrics:
        ranks = {"world_size": self.world_size, "observed.hosts": len(self.observed.hosts),
                 "parameter_checksums": len(self.parameter_checksums)}
        if len(set(ranks.values())) != 1:
            raise ValueError(", ".join(f"{name} has {count} ranks" for name, count in ranks.items()))
        return self


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
    with part.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    try:
        if replace:
            part.replace(path)
        else:
            os.link(part, path)  # atomic on NFS too, and fails when the name is taken
    except FileExistsError as error:
        raise RecordError(f"{path}: already written; a record is never overwritten") from error
    finally:
        part.unlink(missing_ok=True)


def as_json(record: Record) -> dict[str, Any]:
    """The record as plain data."""
    return record.model_dump(mode="json")
