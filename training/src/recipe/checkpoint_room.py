"""How large a checkpoint is going to be, and whether its folder has room for it, before the first step.

The tensors are counted on the model itself: every entry of its state by its own data type, and for each trained
parameter the two moments of AdamW, in the parameter's type, and a step. What a stored tensor costs besides is
measured: torch stores one and counts. So is the random state. An allowance is left for .metadata alone.

A refusal has to be certain: it counts the checkpoints that are sure to be written and to lie there at the same time.
Not certain is a quota that no tool on the node reports. To fill the folder for a test would prove little: where the
filesystem does not reserve blocks, each of them is written, and others write meanwhile. So such a quota is recorded
as unknown, and a save that meets it says what was predicted and what was free.
"""

from __future__ import annotations

import errno
import io
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import folders
import torch
from bringup.records import CheckpointRoom

from recipe import GIB, group, training_state
from recipe.strategy import Refused

MIB = 2**20
METADATA_BYTES = 256  # of .metadata for each stored part of a tensor: 238 on one rank and 267 on two, torch 2.13
# until a save was timed: what the profile `generic` requires of one node alone, and of each while all nodes write
ALONE_BYTES_PER_S = 0.1e9
TOGETHER_BYTES_PER_S = 0.02e9
SEEN_WITHIN_S = 10.0  # a folder made on one node: longer than a network filesystem keeps that it is not there
FULL = (errno.ENOSPC, errno.EDQUOT)
NO_QUOTA_KNOWN = "no tool on {host} reports one for this folder (quota, or lfs on Lustre): a save may still meet one"


@dataclass(frozen=True)
class Size:
    """The size of one checkpoint, without its record (checkpoint.json)."""

    tensors: int  # bytes of model and optimizer
    rest: int  # bytes: what storing them costs, .metadata, random states
    per_step: int  # bytes: the rows that all ranks consumed in a step
    files: int

    def bytes(self, step: int) -> int:
        return self.tensors + self.rest + step * self.per_step


@dataclass(frozen=True)
class Saves:
    """The checkpoints that are sure to be written: the step of the last, and how many lie there at the same time."""

    last: int
    at_once: int


def size_of(model: Any, shards: int, ranks: int, rows_per_step: int) -> Size:
    """The size of a checkpoint. The weights of the model may be on the meta device. `shards`: ranks that share one copy
    of the states.

    Tied weights are stored under each of their names, and have one pair of moments. A tensor is stored in as many
    parts as its rows are cut into, the step of each parameter once.
    """
    weights = list(model.state_dict().values())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    step = torch.zeros(())  # torch.optim keeps it so, whatever the parameter's type
    stored = weights + trained + trained
    tensors = sum(tensor.numel() * tensor.element_size() for tensor in stored) + len(trained) * step.nbytes
    parts = sum(_parts(tensor.shape[0] if tensor.dim() else 1, shards) for tensor in stored) + len(trained)
    one_part = _stored_bytes(step) - step.nbytes + METADATA_BYTES
    of_rank = _stored_bytes({"random": training_state.random_state(), "rows": torch.zeros(0, dtype=torch.int64)})
    return Size(
        tensors=tensors,
        rest=parts * one_part + ranks * of_rank,
        per_step=rows_per_step * torch.int64.itemsize,
        files=2 * ranks + 2,  # of each rank its tensors and its random state; .metadata and the record
    )


def assumed_bytes_per_s(nodes: int) -> float:
    """Bytes per second of a save in which every node writes its share, before one was timed."""
    return max(ALONE_BYTES_PER_S, nodes * TOGETHER_BYTES_PER_S)


def saves(first: int, steps: int, save_steps: int, keep: int, rehearse_at: int) -> Saves:
    """The saves of a training from the step after `first` to `steps`. Each is written before the oldest is removed."""
    due = {rehearse_at}
    if save_steps:
        due |= {*range(save_steps, steps + 1, save_steps), steps}
    due = {step for step in due if step > first}
    return Saves(max(due, default=0), min(len(due), keep + 1))


def require(size: Size, wanted: Saves, root: Path, hosts: list[str]) -> CheckpointRoom:
    """Refuse, on every rank, checkpoints that cannot fit. A collective. `hosts`: index = rank.

    One folder on all nodes has to hold them, so the first rank says what is free.
    """
    largest = size.bytes(wanted.last)
    known = CheckpointRoom(predicted_bytes=largest, predicted_files=size.files, at_once=wanted.at_once)
    if not wanted.at_once:
        return known
    problem = not_one_folder(root, hosts)
    if problem is not None:
        raise Refused(f"checkpoints: {problem}; give a --checkpoint-dir that is one folder on all nodes")
    left = group.from_first(_left(root) if group.RANK == 0 else None, folders.Left | None)
    if left is not None:
        known = known.model_copy(update=_known(left, hosts[0]))
    needed, files = wanted.at_once * largest, wanted.at_once * size.files
    for free, of_all, text in (
        (known.free_bytes, needed, in_words),
        (known.free_files, files, lambda count: f"{count} files"),
    ):
        if free is not None and of_all > free:
            raise Refused(
                f"checkpoints: expected room for {text(of_all)} (predicted, {wanted.at_once} at a time) in {root}, "
                f"observed {text(free)} free on {hosts[0]} (by {known.limited_by}): make room there, give another "
                "--checkpoint-dir, lower --keep-checkpoints, or leave checkpoints out (--save-steps 0, "
                "--no-rehearse-resume)"
            )
    return known


def not_one_folder(root: Path, hosts: list[str]) -> str | None:
    """Why not all nodes can use this folder together; None when they can. It is made. A collective."""
    marker = root / ".seen-by-all"
    problem = group.from_first(_make(marker) if group.RANK == 0 else None)
    if problem is not None:
        return f"{root} cannot be written, seen from {hosts[0]}: {problem}"
    first = hosts.index(hosts[group.RANK]) == group.RANK
    seen = group.gather(not first or _appears(marker))
    if group.RANK == 0:
        marker.unlink(missing_ok=True)
    if all(seen):
        return None
    blind = seen.index(False)
    return f"{root} was made on {hosts[0]} and is not seen on {hosts[blind]} (rank {blind})"


def in_words(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"


def of_full(text: str, root: Path, known: CheckpointRoom) -> str:
    """Why a save failed; where the folder or a quota is full, with what was predicted and what was and is free."""
    if not any(os.strerror(code) in text for code in FULL):
        return text
    left = _left(root)
    then = "unknown" if known.free_bytes is None else in_words(known.free_bytes)
    now = "unknown" if left is None or left.space is None else in_words(left.space * GIB)
    return (
        f"{text}; predicted {in_words(known.predicted_bytes)} a checkpoint, free {then} before step 1 and {now} now"
        + (f"; quota: unknown, {known.quota}" if known.quota else "")
    )


def _known(left: folders.Left, host: str) -> dict[str, Any]:
    return {
        "free_bytes": None if left.space is None else int(left.space * GIB),
        "free_files": None if left.files == folders.NO_LIMIT else left.files,
        "limited_by": "quota" if left.of_space.endswith("by quota") else "filesystem",
        "quota": None if left.quota else NO_QUOTA_KNOWN.format(host=host),
    }


def _left(root: Path) -> folders.Left | None:
    try:
        return folders.left(str(root))
    except OSError:
        return None


def _make(marker: Path) -> str | None:
    """Why not, in the operating system's words."""
    try:
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
    except OSError as error:
        return error.strerror or str(error)
    return None


def _appears(marker: Path) -> bool:
    begun = time.monotonic()
    while not marker.exists():
        if time.monotonic() - begun > SEEN_WITHIN_S:
            return False
        time.sleep(0.2)
    return True


def _parts(rows: int, shards: int) -> int:
    """fully_shard cuts rows into equal pieces; the last ranks may have none."""
    return math.ceil(rows / math.ceil(rows / shards)) if rows else 1


def _stored_bytes(value: Any) -> int:
    stream = io.BytesIO()
    torch.save(value, stream)
    return len(stream.getvalue())
