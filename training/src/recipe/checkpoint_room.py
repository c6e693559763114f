"""How large a checkpoint is going to be, and whether its folder has room for it, before the first step.

The tensors are counted on the model itself: every entry of its state by its own data type, and for each trained
parameter the two moments of AdamW, in the parameter's type, and a step. What storing costs besides is a constant.

A refusal has to be certain: it counts the checkpoints that are sure to be written and to lie there at the same time.
Not certain is a quota that no tool on the node reports: it is recorded as unknown.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import folders
import torch
from bringup.records import CheckpointRoom

from recipe import GIB, group
from recipe.strategy import Refused

MIB = 2**20
PART_BYTES = 1820  # that torch 2.13 adds to a stored part of a tensor, in its file and in .metadata
RANK_BYTES = 19300  # of a file of random state
# until a save was timed: what the profile `generic` requires of one node alone, and of each while all nodes write
ALONE_BYTES_PER_S = 0.1e9
TOGETHER_BYTES_PER_S = 0.02e9
SEEN_WITHIN_S = 10.0  # a folder made on one node: longer than a network filesystem keeps that it is not there
NO_QUOTA_KNOWN = "no tool on {host} reports one for this folder (quota, or lfs on Lustre): a save may still meet one"


def bytes_of(model: Any, shards: int, ranks: int) -> int:
    """The size of a checkpoint without its record and the rows consumed. The weights of the model may be on the meta
    device. `shards`: ranks that share one copy of the states.

    Tied weights are stored under each of their names, and have one pair of moments. A tensor is stored in as many
    parts as its rows are cut into, the step of each parameter once.
    """
    weights = list(model.state_dict().values())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    stored = [*weights, *trained, *trained, *(torch.zeros(()) for _ in trained)]  # torch keeps a step in float32
    parts = sum(min(shards, tensor.shape[0]) if tensor.dim() else 1 for tensor in stored)
    tensors = sum(tensor.numel() * tensor.element_size() for tensor in stored)
    return tensors + parts * PART_BYTES + ranks * RANK_BYTES


def assumed_bytes_per_s(nodes: int) -> float:
    """Bytes per second of a save in which every node writes its share, before one was timed."""
    return max(ALONE_BYTES_PER_S, nodes * TOGETHER_BYTES_PER_S)


def saves(first: int, steps: int, save_steps: int, keep: int, rehearse_at: int) -> tuple[int, int]:
    """(step of the last checkpoint that is sure to be written, how many lie there at the same time) of a training from
    the step after `first` to `steps`. Each is written before the oldest is removed."""
    due = {rehearse_at}
    if save_steps:
        due |= {*range(save_steps, steps + 1, save_steps), steps}
    due = {step for step in due if step > first}
    return max(due, default=0), min(len(due), keep + 1)


def require(largest: int, at_once: int, root: Path, hosts: list[str]) -> CheckpointRoom:
    """Refuse, on every rank, checkpoints that cannot fit. A collective. largest: bytes of one; `hosts`: index = rank.

    One folder on all nodes has to hold them, so the first rank says what is free.
    """
    files = 2 * len(hosts) + 2  # of each rank its tensors and its random state; .metadata and the record
    known = CheckpointRoom(predicted_bytes=largest, predicted_files=files, at_once=at_once)
    if not at_once:
        return known
    problem = not_one_folder(root, hosts)
    if problem is not None:
        raise Refused(f"checkpoints: {problem}; give a --checkpoint-dir that is one folder on all nodes")
    left = group.from_first(folders.left(str(root)) if group.RANK == 0 else None, folders.Left)
    free = None if left.space is None else int(left.space * GIB)
    by = "quota" if left.of_space.endswith("by quota") else "filesystem"
    needed, needed_files = at_once * largest, at_once * files
    for lacks, wanted, observed in (
        (free is not None and needed > free, in_words(needed), in_words(free or 0)),
        (needed_files > left.files, f"{needed_files} files", f"{left.files} files"),
    ):
        if lacks:
            raise Refused(
                f"checkpoints: expected room for {wanted} (predicted, {at_once} at a time) in {root}, observed "
                f"{observed} free on {hosts[0]} (by {by}): make room there, give another --checkpoint-dir, lower "
                "--keep-checkpoints, or leave checkpoints out (--save-steps 0, --no-rehearse-resume)"
            )
    return known.model_copy(
        update={
            "free_bytes": free,
            "free_files": None if left.files == folders.NO_LIMIT else left.files,
            "limited_by": by,
            "quota": None if left.quota else NO_QUOTA_KNOWN.format(host=hosts[0]),
        }
    )


def not_one_folder(root: Path, hosts: list[str]) -> str | None:
    """Why not all nodes can use this folder together; None when they can. It is made. A collective."""
    marker, problem = root / ".seen-by-all", None
    if group.RANK == 0:
        try:
            root.mkdir(parents=True, exist_ok=True)
            marker.touch()
        except OSError as error:
            problem = f"{root} cannot be written, seen from {hosts[0]}: {error.strerror}"
    problem = group.from_first(problem)
    if problem is not None:
        return problem
    until_s = time.monotonic() + SEEN_WITHIN_S
    while not marker.exists() and time.monotonic() < until_s:
        time.sleep(0.2)
    seen = group.gather(marker.exists())
    if group.RANK == 0:
        marker.unlink(missing_ok=True)
    if all(seen):
        return None
    blind = seen.index(False)
    return f"{root} was made on {hosts[0]} and is not seen on {hosts[blind]} (rank {blind})"


def in_words(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"
