"""How large a checkpoint is going to be, and whether its folder has room for it, before the first step.

The tensors are counted on the model itself: every entry of its state by its own data type, and for each trained
parameter the two moments of AdamW, in the parameter's type, and a step. Storing adds a constant to each part.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import folders
import torch

from recipe import GIB, group
from recipe.rank import say_once
from recipe.strategy import Refused

MIB = 2**20
PART_BYTES = 1820  # that torch 2.13 adds to a stored part of a tensor, in its file and in .metadata
RANK_BYTES = 19300  # of a file of random state


def bytes_of(model: Any, shards: int, ranks: int) -> int:
    """Return the size of a checkpoint without its record and the rows consumed. The model may be on the meta device.
    `shards`: ranks that share one copy of the states.

    Tied weights are stored under each of their names, and have one pair of moments. A tensor is stored in as many
    parts as its rows are cut into, the step of each parameter once.
    """
    weights = list(model.state_dict().values())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    stored = [*weights, *trained, *trained, *(torch.zeros(()) for _ in trained)]  # torch keeps a step in float32
    parts = sum(min(shards, tensor.shape[0]) if tensor.dim() else 1 for tensor in stored)
    tensors = sum(tensor.numel() * tensor.element_size() for tensor in stored)
    return tensors + parts * PART_BYTES + ranks * RANK_BYTES


def require(largest: int, count: int, root: Path, host: str) -> None:
    """Refuse, on every rank, `count` checkpoints that cannot fit; say the rest. A collective. largest: bytes of one;
    host: of the first rank, which looks."""
    if not count:
        return
    free, problem = None, None
    if group.RANK == 0:
        try:
            root.mkdir(parents=True, exist_ok=True)
            free = folders.left(str(root), with_quota=False).space
        except OSError as error:
            problem = f"{root} cannot be written, seen from {host}: {error.strerror}"
    free, problem = group.from_first((free, problem))
    left = "unknown" if free is None else in_words(free * GIB)
    if free is not None and count * largest > free * GIB:
        problem = (
            f"expected room for {in_words(count * largest)} (predicted, {count} at a time) in {root}, observed {left} "
            f"free on {host}"
        )
    if problem is not None:
        raise Refused(
            f"checkpoints: {problem}: make room there, give another --checkpoint-dir, or leave checkpoints out "
            "(--save-steps 0, --no-rehearse-resume)"
        )
    say_once(f"a checkpoint will take {in_words(largest)}, {count} at a time; free for them: {left}")


def in_words(size: float) -> str:
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.1f} MiB"
