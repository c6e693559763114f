"""Writes and reads the files of a checkpoint, and finds the folders that are whole.

A save goes to .step-00000006.part, which gets its name when the record is in it: what a killed save leaves is no
checkpoint. A tensor is known by its name and its whole shape, so any number of ranks and any strategy can read it.
In a collective, what fails on one rank fails on all, and each rank names the one that failed.
"""

import contextlib
import os
import pathlib
import pickle
import shutil
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed.checkpoint as dcp
from bringup.kernel.errors import RecordError
from bringup.kernel.records import Run, read_record, write_record
from bringup.training.records import Checkpoint, CheckpointFile
from torch.distributed.checkpoint import filesystem, metadata
from transformers import Trainer

from recipe import group
from recipe.checkpoint import state
from recipe.data import first_line
from recipe.rank import node_name, one_line
from recipe.trajectory import Trajectory

T = TypeVar("T")
RECORD, PREFIX, METADATA = "checkpoint.json", "step-", ".metadata"


class PeerFailedError(RuntimeError):
    """Another rank could not, and says why itself. The message says which."""


class Read(NamedTuple):
    """Result of reading a checkpoint. differing: names of tensors that are not what was saved."""

    seconds: float
    compared: int
    differing: list[str]
    bytes: int
    random: torch.Tensor | None  # state of this rank; None: the number of ranks changed
    rows: list[int]  # that were consumed: this rank's share


class Saved(NamedTuple):
    """A checkpoint that was written. Seconds of the slowest rank."""

    folder: Path
    record: Checkpoint
    write_s: float  # with fsync
    checksum_s: float  # fingerprints of the tensors, after the write


def together(what: str, action: Callable[[], T]) -> T:
    """Return `action`'s result of this rank. Raises on all ranks when it failed on one. what: begins the line."""
    result, error = None, None
    try:
        result = action()
    except dcp.CheckpointException as failed:  # raised on all ranks alike
        error = failed.failures.get(group.RANK, (None,))[0]
    except (state.CheckpointError, OSError, RecordError) as failed:
        error = failed
    own = None if error is None else f"{what}: rank {group.RANK} on {node_name()}: {_why(error)}"
    failures = {rank: why for rank, why in enumerate(group.gather(own)) if why is not None}
    if own is not None:
        raise state.CheckpointError(own)
    for rank, why in failures.items():
        raise PeerFailedError(f"rank {rank} failed: {why}")
    return result  # type: ignore[return-value]  # it did not fail


def save(root: Path, run: str, strategy: str, recipe: dict[str, Any], trainer: Trainer, so_far: Trajectory) -> Saved:
    """Write the checkpoint of this step. A collective."""
    step = trainer.state.global_step
    final = root / f"{PREFIX}{step:08d}"
    part = root / f".{final.name}.part"
    what = f"checkpoint of step {step} cannot be written to {part}"
    together(what, lambda: _make(part) if group.RANK == 0 else None)
    tensors = state.tensors_of(trainer)
    begun = time.perf_counter()

    def write() -> list[CheckpointFile]:
        rows = torch.tensor(so_far.rows, dtype=torch.int64)
        of_rank = {f"rank{group.RANK}.random": state.random_state(), f"rank{group.RANK}.rows": rows}
        _write_tensors(tensors | of_rank, part, step)
        paths = [*([part / METADATA] if group.RANK == 0 else []), *sorted(part.glob(f"__{group.RANK}_*"))]
        return [CheckpointFile(name=path.name, rank=group.RANK, bytes=path.stat().st_size) for path in paths]

    files = group.gather(together(what, write), list[CheckpointFile])
    written = time.perf_counter()
    fingerprints = state.fingerprints_of_all(tensors)
    write_s, checksum_s = map(max, zip(*group.gather([written - begun, time.perf_counter() - written]), strict=True))
    record = Checkpoint(
        run=run,
        step=step,
        world_size=group.WORLD,
        strategy=strategy,
        recipe=recipe,
        files=[file for per_rank in files for file in per_rank],
        fingerprints=fingerprints,
        loss=so_far.loss,
        grad_norm=so_far.grad_norm,
    )

    def finish() -> None:
        if problems := damage(part, record.files):
            raise state.CheckpointError(f"{problems[0]}: is {root} one folder on all nodes?")
        write_record(part / RECORD, record)
        part.rename(final)

    together(what, finish if group.RANK == 0 else lambda: None)
    return Saved(final, record, write_s, checksum_s)


def read(folder: Path, record: Checkpoint, trainer: Trainer) -> Read:
    """Give the trainer its saved parameters, and optimizer state; the rate is constant. A collective. Each part is read
    once, by one rank, however many replicas there are."""
    tensors = state.tensors_of(trainer)
    own = {name: tensor for name, tensor in tensors.items() if state.is_first_copy(tensor)}
    reader, what = CarefulReader(str(folder)), f"{folder} cannot be read"
    rows = together(what, lambda: reader.rows_of(range(group.RANK, record.world_size, group.WORLD)))
    same = record.world_size == group.WORLD
    random = {f"rank{group.RANK}.random": state.random_state()} if same else {}
    for file in record.files:  # as far as this kernel does it: it should come from the storage and not from memory
        with contextlib.suppress(OSError), (folder / file.name).open("rb") as stream:
            os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    begun = time.perf_counter()
    together(what, lambda: dcp.load(own | rows | random, storage_reader=reader))
    seconds = max(group.gather(time.perf_counter() - begun))
    state.send_to_replicas(tensors)
    now = state.fingerprints_of_all(tensors)
    differing = [name for name, value in now.items() if record.fingerprints.get(name) != value]
    consumed_rows = [row for some in rows.values() for row in some.tolist()]
    return Read(seconds, len(now), differing, record.bytes, next(iter(random.values()), None), consumed_rows)


def newest_whole(roots: Iterable[Path], steps: int) -> tuple[Path | None, Checkpoint | None, list[str]]:
    """Return (the newest whole checkpoint before the last of `steps`, its record, what is wrong with newer ones), or
    (None, None, why there is none)."""
    damaged: list[str] = []
    folders = newest_first(roots)
    for folder in folders:
        if step_of(folder) >= steps:
            continue
        try:
            record = read_record(folder / RECORD, Checkpoint)
            problems = damage(folder, record.files)
        except RecordError as error:
            problems = [str(error)]
        if not problems:
            return folder, record, damaged
        damaged.append(one_line(problems[0]))
    if folders and not damaged:
        return None, None, [f"the newest is of step {step_of(folders[0])} of --steps {steps}: nothing is left to train"]
    return None, None, [f"damaged: {damaged[0]}" if damaged else "no finished checkpoint was found"]


def damage(folder: Path, files: list[CheckpointFile]) -> list[str]:
    """Return what is wrong with these files, one line each: one is missing, or has another size than was written."""
    problems = []
    for file in files:
        try:
            if (size := (folder / file.name).stat().st_size) != file.bytes:
                problems.append(f"{folder.name}/{file.name}: {size} bytes, {file.bytes} were written")
        except OSError as error:
            problems.append(f"{folder.name}/{file.name}: cannot be read from {node_name()}: {error.strerror}")
    return problems


class NamingWriter(dcp.FileSystemWriter):
    """Keeps the operating system's words: torch sends an error to other ranks without its cause."""

    def write_data(self, plan: Any, planner: Any) -> Any:
        try:
            return super().write_data(plan, planner)
        except (OSError, RuntimeError) as error:
            raise state.CheckpointError(_why(error)) from None


def _why(error: BaseException) -> str:
    """Return the operating system's words, also from behind the exceptions of torch's zip writer."""
    cause: BaseException | None = error
    while cause is not None and not (isinstance(cause, OSError) and cause.strerror):
        cause = cause.__cause__ or cause.__context__
    return cause.strerror or "" if isinstance(cause, OSError) else first_line(error)


def _make(part: Path) -> None:
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)


def _write_tensors(tensors: dict[str, Any], part: Path, step: int) -> None:
    dcp.save(tensors, storage_writer=NamingWriter(str(part)))


def step_of(folder: Path) -> int:
    return int(folder.name.removeprefix(PREFIX))


def newest_first(roots: Iterable[Path]) -> list[Path]:
    """Return the finished checkpoints in these folders, the latest step first, without what a killed save left."""
    finished = [record.parent for root in roots for record in root.glob(f"{PREFIX}{8 * '[0-9]'}/{RECORD}")]
    return sorted(finished, key=step_of, reverse=True)


def attempts(run_dir: Path) -> list[Path]:
    """Return the run and the attempts of its job before it, newest first: a requeued job has a folder per attempt."""
    folders = [run_dir]
    while (folders[-1] / "run.json").is_file():
        before = read_record(folders[-1] / "run.json", Run).continues
        if before is None or (folder := run_dir.parent / before) in folders:
            break
        folders.append(folder)
    return folders


# .metadata is a pickle. It is read as nothing but what torch writes there: what it may name is a closed table, and
# nothing is looked up in a module, because pickle follows dotted names: `os.system`, of a module that imports os.
_ENCODING = metadata._MEM_FORMAT_ENCODING


def _member(of: object, name: object) -> _ENCODING:
    """All that getattr may do: Python 3.11.2, of Debian 12, pickles a member of an Enum as getattr(Class, name)."""
    if of is not _ENCODING or not isinstance(name, str) or name not in _ENCODING.__members__:
        raise state.CheckpointError(f"{METADATA} holds getattr({of!r}, {name!r}), which no checkpoint of ours does")
    return _ENCODING.__members__[name]


_TENSOR = (metadata.TensorStorageMetadata, metadata.TensorProperties, metadata.ChunkStorageMetadata, _ENCODING)
_OF_TORCH = ("Size", "float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8")
_WHOLE = (metadata.Metadata, metadata.MetadataIndex, metadata.StorageMeta, filesystem._StorageInfo)
# No BytesStorageMetadata: torch unpickles such an entry without any list, and all that we save is tensors.
_ALLOWED: dict[tuple[str, str], Any] = {
    ("builtins", "getattr"): _member,
    ("pathlib._local", "PosixPath"): pathlib.PosixPath,  # written by Python 3.13; older ones have no such module
    ("pathlib", "PosixPath"): pathlib.PosixPath,
    ("torch.serialization", "_get_layout"): torch.serialization._get_layout,
    **{(kind.__module__, kind.__name__): kind for kind in (*_TENSOR, *_WHOLE)},
    **{("torch", name): getattr(torch, name) for name in _OF_TORCH},
}


class CarefulReader(dcp.FileSystemReader):
    """torch's reader of checkpoints, which does not trust .metadata."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Any:
        """Read the metadata, without its note of where it was written. Raises CheckpointError for anything else."""
        with (Path(str(self.path)) / METADATA).open("rb") as stream:
            read = _Unpickler(stream).load()
        if type(read) is not metadata.Metadata:
            raise state.CheckpointError(f"{METADATA} holds a {type(read).__name__}, not the metadata of a checkpoint")
        for part in read.storage_data.values():
            if (name := part.relative_path) != Path(name).name:
                raise state.CheckpointError(f"{METADATA} names {name!r}, which lies outside of the checkpoint")
        read.storage_meta = metadata.StorageMeta()
        return read

    def rows_of(self, ranks: Iterable[int]) -> dict[str, torch.Tensor]:
        """Make room for the rows of these ranks. After a resume by more ranks they have unlike many."""
        kept = self.read_metadata().state_dict_metadata
        names = [f"rank{rank}.rows" for rank in ranks]
        if lacking := next((name for name in names if name not in kept), None):
            raise state.CheckpointError(f"{METADATA} names no {lacking}")
        return {name: torch.empty(kept[name].size, dtype=torch.int64) for name in names}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise state.CheckpointError(f"{METADATA} holds {module}.{name}, which no checkpoint of ours does")
        return _ALLOWED[module, name]
