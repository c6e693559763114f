"""What a checkpoint holds: the tensors of model and optimizer by name, and the random state; and their fingerprints.

A fingerprint is the bits of a tensor as one integer, the same however the tensor is sharded: sum over rows i (dimension
0) of (i + 1) x (sum of the row's elements), modulo 2^64. Integers give the same sum in any order, so shards add up to
the whole. A row in another place has another factor. It does not protect against somebody who makes two tensors with
equal ones on purpose.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy
import torch
import torch.distributed as dist
from accelerate.utils import set_seed
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from recipe import group

if TYPE_CHECKING:
    from transformers import Trainer


class CheckpointError(RuntimeError):
    """This rank could not write or read its part. One line: step, rank, file, cause."""


def tensors_of(trainer: Trainer) -> dict[str, Any]:
    """Return tensors of model and optimizer by name, of a fresh optimizer too. They share the trainer's memory."""
    model, optimizer = trainer.model_wrapped, getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    tensors = {f"model.{name}": tensor for name, tensor in get_model_state_dict(model).items()}
    for parameter, kept in get_optimizer_state_dict(model, optimizer)["state"].items():
        tensors |= {f"optimizer.{parameter}.{name}": value for name, value in kept.items()}
    plain = [name for name, value in tensors.items() if not isinstance(value, torch.Tensor)]
    if plain:
        raise CheckpointError(f"{plain[0]} is not a tensor: this optimizer keeps a state that cannot be saved here")
    return dict(sorted(tensors.items()))


def of_rank(trainer: Trainer) -> dict[str, Any]:
    """Return all that this rank holds: fingerprints of its tensors, and its random state."""
    return fingerprints_of_rank(tensors_of(trainer)) | random_state()


def wipe(trainer: Trainer) -> None:
    """Forget parameters, optimizer state and random state, so that only a checkpoint can bring them back."""
    with torch.no_grad():
        for tensor in tensors_of(trainer).values():
            tensor.zero_()
    set_seed(0)


def random_state() -> dict[str, Any]:
    """Return that of all generators that training may draw from, as numbers and lists of them."""
    kind, words, *rest = numpy.random.get_state()  # the global one: others draw from it
    states: dict[str, Any] = {
        "python": random.getstate(),
        "numpy": (kind, words.tolist(), *rest),
        "torch": torch.get_rng_state().tolist(),
    }
    if group.CUDA:
        states["cuda"] = torch.cuda.get_rng_state().tolist()
    return states


def put_random_state(states: dict[str, Any]) -> None:
    random.setstate(states["python"])
    numpy.random.set_state(states["numpy"])
    torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))
    if group.CUDA and "cuda" in states:
        torch.cuda.set_rng_state(torch.tensor(states["cuda"], dtype=torch.uint8))


_ELEMENTS_AT_ONCE = 2**24
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def fingerprints_of_rank(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Return fingerprints of the part of each tensor that this rank stores."""
    return {name: int(_local(tensor).item()) for name, tensor in tensors.items()}


def fingerprints_of_all(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Return fingerprints of whole tensors: one copy of each, over all ranks. A collective: all ranks give equal names
    in equal order."""
    sums = torch.zeros(len(tensors), dtype=torch.int64, device=group.DEVICE)
    for index, tensor in enumerate(tensors.values()):
        if is_first_copy(tensor):
            sums[index] = _local(tensor)
    if dist.is_initialized():
        dist.all_reduce(sums)
    return dict(zip(tensors, sums.tolist(), strict=True))


def place_of_shard(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return where this rank is in its shard group: ranks at one place are replicas of each other."""
    if not isinstance(tensor, DTensor):
        return ()
    places = zip(tensor.placements, tensor.device_mesh.get_coordinate() or [], strict=True)
    return tuple(at for placement, at in places if not isinstance(placement, Replicate))


def is_first_copy(tensor: torch.Tensor) -> bool:
    """Say whether this rank stores the first of equal parts: under DDP rank 0, under HSDP the first shard group."""
    if not isinstance(tensor, DTensor):
        return group.RANK == 0
    places = zip(tensor.placements, tensor.device_mesh.get_coordinate() or [], strict=True)
    return all(at == 0 for placement, at in places if isinstance(placement, Replicate))


def send_to_replicas(tensors: Mapping[str, torch.Tensor]) -> None:
    """Give every copy what the first one holds, in place. A collective: all ranks give equal names in equal order."""
    if not dist.is_initialized():
        return
    for tensor in tensors.values():
        if not isinstance(tensor, DTensor):
            _send(tensor, None)
            continue
        for at, placement in enumerate(tensor.placements):
            if isinstance(placement, Replicate):
                _send(tensor.to_local(), tensor.device_mesh.get_group(at))


def _send(tensor: torch.Tensor, over: dist.ProcessGroup | None) -> None:
    moved = tensor.detach().to(group.DEVICE).contiguous()  # nccl sends nothing that lies on the host
    dist.broadcast(moved, group=over, group_src=0)
    if moved.data_ptr() != tensor.data_ptr():
        tensor.detach().copy_(moved)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Return the sum of this rank's part, int64, on its device."""
    first_row = 0
    if isinstance(tensor, DTensor):
        _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        first_row = offset[0] if offset else 0
        tensor = tensor.to_local()
    tensor = tensor.detach()
    total = torch.zeros((), dtype=torch.int64, device=tensor.device)
    if tensor.numel() == 0:
        return total
    rows = tensor.contiguous().reshape(tensor.shape[0] if tensor.dim() else 1, -1)
    bits = rows.view(_INTEGERS[tensor.element_size()])
    at_once = max(1, _ELEMENTS_AT_ONCE // max(1, bits.shape[1]))  # on a CPU a sum in int64 copies what it adds
    for first in range(0, len(bits), at_once):
        sums = bits[first : first + at_once].sum(dim=1, dtype=torch.int64)
        total += (sums * (torch.arange(len(sums), device=sums.device) + (first_row + first + 1))).sum()
    return total
