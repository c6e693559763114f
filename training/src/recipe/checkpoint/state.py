"""What a checkpoint holds: the tensors of model and optimizer by name, and the random state; and their fingerprints.

A fingerprint is the bits of a tensor as one integer: sum over rows i (dimension 0) of (i + 1) x (sum of the row's
elements), modulo 2^64. Integers give the same sum in any order, so shards add up to the whole, however it is sharded;
a row in another place has another factor. It does not protect against somebody who makes equal ones on purpose.
"""

from collections.abc import Mapping
from typing import Any

import torch
import torch.distributed as dist
from accelerate.utils import set_seed
from torch.distributed.checkpoint.state_dict import get_model_state_dict, get_optimizer_state_dict
from torch.distributed.tensor import DTensor, Replicate
from transformers import Trainer

from recipe import group
from recipe.weights import rows_of

_ELEMENTS_AT_ONCE = 2**24
_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class CheckpointError(RuntimeError):
    """This rank could not write or read its part. One line: step, rank, file, cause."""


def tensors_of(trainer: Trainer) -> dict[str, Any]:
    """Return tensors of model and optimizer by name, of a fresh optimizer too. They share the trainer's memory."""
    model, optimizer = trainer.model_wrapped, getattr(trainer.optimizer, "optimizer", trainer.optimizer)
    tensors = {f"model.{name}": tensor for name, tensor in get_model_state_dict(model).items()}
    for parameter, kept in get_optimizer_state_dict(model, optimizer)["state"].items():  # type: ignore[union-attr, arg-type]
        tensors |= {f"optimizer.{parameter}.{name}": value for name, value in kept.items()}  # type: ignore[union-attr]
    plain = [name for name, value in tensors.items() if not isinstance(value, torch.Tensor)]
    if plain:
        raise CheckpointError(f"{plain[0]} is not a tensor: this optimizer keeps a state that cannot be saved here")
    return dict(sorted(tensors.items()))


def of_rank(trainer: Trainer) -> dict[str, Any]:
    """Return all that this rank holds: fingerprints of its tensors, and its random state."""
    sums = {name: int(_local(tensor).item()) for name, tensor in tensors_of(trainer).items()}
    return sums | {"random": random_state().tolist()}


def wipe(trainer: Trainer) -> None:
    """Forget parameters, optimizer state and random state, so that only a checkpoint can bring them back."""
    with torch.no_grad():
        for tensor in tensors_of(trainer).values():
            tensor.zero_()
    set_seed(0)


def random_state() -> torch.Tensor:
    """Return that of torch's generators, from which models and loaders draw, as bytes."""
    states = [torch.get_rng_state(), *([torch.cuda.get_rng_state()] if group.CUDA else [])]
    return torch.cat(states)


def put_random_state(state: torch.Tensor) -> None:
    of_host = torch.get_rng_state().numel()
    torch.set_rng_state(state[:of_host])
    if group.CUDA:
        torch.cuda.set_rng_state(state[of_host:])


def fingerprints_of_all(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Return fingerprints of whole tensors, over all ranks. A collective: all ranks give equal names in equal order."""
    sums = torch.zeros(len(tensors), dtype=torch.int64, device=group.DEVICE)
    for index, tensor in enumerate(tensors.values()):
        if is_first_copy(tensor):
            sums[index] = _local(tensor)
    if dist.is_initialized():
        dist.all_reduce(sums)
    return dict(zip(tensors, sums.tolist(), strict=True))


def is_first_copy(tensor: torch.Tensor) -> bool:
    """Say whether this rank stores the first of equal parts: under DDP rank 0, under HSDP the first shard group."""
    if not isinstance(tensor, DTensor):
        return group.RANK == 0
    places = zip(tensor.placements, tensor.device_mesh.get_coordinate() or [], strict=True)
    return all(at == 0 for placement, at in places if isinstance(placement, Replicate))


def send_to_replicas(tensors: Mapping[str, torch.Tensor]) -> None:
    """Give every copy what the first one holds, in place. A collective: all ranks give equal names in equal order."""
    for tensor in tensors.values() if dist.is_initialized() else ():
        local, among = tensor.detach(), [dist.group.WORLD]
        if isinstance(tensor, DTensor):
            local, mesh = tensor.detach().to_local(), tensor.device_mesh  # type: ignore[attr-defined]
            among = [mesh.get_group(at) for at, kind in enumerate(tensor.placements) if isinstance(kind, Replicate)]
        for replicas in among:
            moved = local.to(group.DEVICE).contiguous()  # nccl sends nothing that lies on the host
            dist.broadcast(moved, group=replicas, group_src=0)
            local.copy_(moved)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Return the sum of this rank's part, int64, on its device."""
    first_row = 0
    if isinstance(tensor, DTensor):
        first_row = rows_of(tensor)[0].start if tensor.dim() else 0
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
