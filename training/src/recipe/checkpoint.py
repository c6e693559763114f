"""Checkpoints: written whole or not at all, checked when they are read, the same whatever the strategy.

docs/checkpoints.md says what lies in the folder. A save goes to .step-00000006.part. It gets its name when the record
is in it, so what a killed save leaves is not a checkpoint. A tensor is known by its name and its whole shape, so
another number of ranks or another strategy can read it. Parameters and optimizer tensors are read in place. Their
fingerprints are compared with those that were saved.

A function that says so is a collective: what fails on one rank fails on all, and each rank names the one that failed.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
import torch.distributed.checkpoint as dcp
from bringup.errors import RecordError
from bringup.records import Checkpoint, CheckpointFile, write_record

from recipe import group, training_state
from recipe.checkpoint_folders import RECORD, folder_of
from recipe.checkpoint_metadata import METADATA, CarefulReader, CheckpointError
from recipe.documents import first_line
from recipe.rank import node_name
from recipe.trajectory import Trajectory

if TYPE_CHECKING:
    from transformers import Trainer

T = TypeVar("T")

_CHUNK_BYTES = 16 * 2**20


class PeerFailedError(RuntimeError):
    """Another rank could not: it says why itself. The message says which."""


@dataclass(frozen=True)
class Read:
    """What reading a checkpoint gave. differing: names of tensors that are not what was saved."""

    seconds: float
    compared: int
    differing: list[str]


def together(action: Callable[[], T]) -> T:
    """`action` on every rank; this rank's result. Raises on all ranks when it failed on one."""
    result, own = None, None
    try:
        result = action()
    except (CheckpointError, OSError) as error:
        own = first_line(error)
    _raise_first(dict(enumerate(group.gather(own))))
    return result  # type: ignore[return-value]  # it did not fail


def _raise_first(failures: Mapping[int, str | None]) -> None:
    """failures: rank -> why it could not, None or missing if it could; the same on every rank."""
    own, failed = failures.get(group.RANK), [rank for rank, why in failures.items() if why is not None]
    if own is not None:
        raise CheckpointError(own)
    if failed:
        raise PeerFailedError(f"rank {failed[0]} failed: {failures[failed[0]]}")


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was written. Seconds of the slowest rank; its bytes are those of the record's files."""

    folder: Path
    record: Checkpoint
    write_s: float  # with fsync
    checksum_s: float  # CRC-32 of the files and fingerprints of the tensors, after the write


def save(
    root: Path,
    run: str,
    strategy: str,
    recipe: dict[str, Any],
    trainer: Trainer,
    so_far: Trajectory,
) -> Saved:
    """Write the checkpoint of this step. A collective."""
    step = trainer.state.global_step
    part, final = root / f".{folder_of(step)}.part", root / folder_of(step)
    together(lambda: _make(part, final, step) if group.RANK == 0 else None)
    tensors = training_state.tensors_of(trainer)
    begun = time.perf_counter()
    _write_tensors(tensors, part, step)

    def own_part() -> list[Path]:
        own, rows = part / f"rank-{group.RANK}.pt", torch.tensor(so_far.rows, dtype=torch.int64)
        with _naming(own, step), own.open("wb") as stream:
            torch.save({"random": training_state.random_state(), "rows": rows}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        return [*sorted(part.glob(f"__{group.RANK}_*")), own]

    written = together(own_part)
    write_s = max(group.gather(time.perf_counter() - begun))
    begun = time.perf_counter()
    own_files = together(lambda: [_described(path) for path in written])
    files = group.gather(own_files, list[CheckpointFile])
    shared = [_described(part / METADATA)] if group.RANK == 0 else []
    fingerprints = training_state.fingerprints_of_all(tensors)
    checksum_s = max(group.gather(time.perf_counter() - begun))
    record = Checkpoint(
        run=run,
        step=step,
        world_size=group.WORLD,
        strategy=strategy,
        recipe=recipe,
        files=[*shared, *(file for per_rank in files for file in per_rank)],
        fingerprints=fingerprints,
        scheduler=_plain(trainer.lr_scheduler.state_dict()),
        loss=so_far.loss,
        grad_norm=so_far.grad_norm,
        written_at=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    )

    unseen = {file.rank: file.name for file in record.files if not (part / file.name).is_file()}
    unseen = group.from_first(unseen, dict[int, str])

    def finish() -> None:
        if group.RANK in unseen:
            raise CheckpointError(
                f"checkpoint of step {step}: {part / unseen[group.RANK]} was written on {node_name()} and is not "
                f"seen by rank 0; is {root} one folder on all nodes?"
            )
        if group.RANK == 0 and not unseen:
            with _naming(part / RECORD, step):
                write_record(part / RECORD, record)
                part.rename(final)
                _sync_folder(root)

    together(finish)
    return Saved(final, group.from_first(record, Checkpoint), write_s, checksum_s)


def read(folder: Path, record: Checkpoint, trainer: Trainer) -> Read:
    """Give the trainer its saved parameters, optimizer state and scheduler. A collective. The files were checked.

    Each part is read once, by one rank, however many replicas there are.
    """
    tensors = training_state.tensors_of(trainer)
    own = {name: tensor for name, tensor in tensors.items() if training_state.is_first_copy(tensor)}
    for file in record.files:
        _drop_from_cache(folder / file.name)

    begun = time.perf_counter()
    with _of_torch(f"{folder} cannot be read"):
        dcp.load(own, storage_reader=CarefulReader(str(folder)))
    seconds = max(group.gather(time.perf_counter() - begun))
    training_state.send_to_replicas(tensors)
    scheduler = trainer.lr_scheduler
    scheduler.load_state_dict(scheduler.state_dict() | record.scheduler)
    for parameters, rate in zip(trainer.optimizer.param_groups, scheduler.get_last_lr(), strict=True):
        parameters["lr"] = rate
    now = training_state.fingerprints_of_all(tensors)
    return Read(seconds, len(now), [name for name, value in now.items() if record.fingerprints.get(name) != value])


def read_own(folder: Path, record: Checkpoint) -> tuple[dict[str, torch.Tensor] | None, list[int]]:
    """(random state of this rank, rows that were consumed).

    The state is None when the number of ranks changed. Each rank reads a share of the rows.
    """
    random, rows = None, []
    for rank in range(group.RANK, record.world_size, group.WORLD):
        content = torch.load(folder / f"rank-{rank}.pt", weights_only=True)
        rows += content["rows"].tolist()
        if record.world_size == group.WORLD:
            random = content["random"]
    return random, rows


def damage(folder: Path, record: Checkpoint, *, of_rank: bool) -> list[str]:
    """What is wrong with its files, one line each.

    of_rank: the files that this rank wrote. Otherwise a share of all files: together the ranks look at each of them.
    """
    problems = []
    of_this_rank = [file for file in record.files if file.rank == group.RANK]
    for file in of_this_rank if of_rank else record.files[group.RANK :: group.WORLD]:
        path = folder / file.name
        try:
            size = path.stat().st_size
            if size != file.bytes:
                problems.append(f"{folder.name}/{path.name}: {size} bytes, {file.bytes} were written")
            elif _crc32(path) != file.crc32:
                problems.append(f"{folder.name}/{path.name}: its contents are not what was written (CRC-32)")
        except OSError as error:
            problems.append(f"{folder.name}/{path.name}: cannot be read from {node_name()}: {error.strerror}")
    return problems


class NamingWriter(dcp.FileSystemWriter):
    """Says which file could not be written: torch's own message is one of its zip writer, without file and cause."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        try:
            return super().write_data(plan, planner)
        except (OSError, RuntimeError) as error:
            path = next(iter(sorted(Path(str(self.path)).glob(f"__{group.RANK}_*"))), Path(str(self.path)))
            raise CheckpointError(_cannot_write(path, error)) from None


def _cannot_write(path: Path, error: BaseException) -> str:
    """With the operating system's words, also behind the exceptions of torch's zip writer."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.strerror):
        cause = cause.__cause__ or cause.__context__
    why = cause.strerror if isinstance(cause, OSError) else first_line(error)
    return f"{path}: rank {group.RANK} on {node_name()} cannot write it: {why}"


@contextlib.contextmanager
def _naming(path: Path, step: int) -> Iterator[None]:
    """What the operating system says inside becomes a CheckpointError that names step, rank and file."""
    try:
        yield
    except CheckpointError:
        raise
    except (OSError, RuntimeError, RecordError) as error:
        raise CheckpointError(f"checkpoint of step {step}: {_cannot_write(path, error)}") from None


@contextlib.contextmanager
def _of_torch(what: str) -> Iterator[None]:
    """What torch raises inside, on all ranks alike, becomes one line of each. what: its beginning."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns that one process is one process
            yield
    except dcp.CheckpointException as error:
        failures = {rank: first_line(why) for rank, (why, _) in error.failures.items()}
        if group.RANK in failures:
            failures[group.RANK] = f"{what}: {failures[group.RANK]}"
        _raise_first(failures)


def _make(part: Path, final: Path, step: int) -> None:
    with _naming(part, step):
        if final.exists():
            raise CheckpointError(f"{final} exists: a checkpoint is never written over another")
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)


def _write_tensors(tensors: dict[str, Any], part: Path, step: int) -> None:
    with _of_torch(f"checkpoint of step {step}"):
        dcp.save(tensors, storage_writer=NamingWriter(str(part)))


def _described(path: Path) -> CheckpointFile:
    return CheckpointFile(name=path.name, rank=group.RANK, bytes=path.stat().st_size, crc32=_crc32(path))


def _crc32(path: Path) -> int:
    value = 0
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            value = zlib.crc32(chunk, value)
    return value


def _drop_from_cache(path: Path) -> None:
    """As far as this kernel does it: what was just written should come from the storage and not from memory."""
    with contextlib.suppress(OSError), path.open("rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def _sync_folder(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    """What of a scheduler's state is numbers and lists of them."""
    return {
        name: value
        for name, value in values.items()
        if isinstance(value, int | float)
        or (isinstance(value, list) and all(isinstance(item, int | float) for item in value))
    }
