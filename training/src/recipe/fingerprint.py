"""The bits of tensors as one integer each, the same however a tensor is sharded.

fingerprint = sum over rows i (dimension 0) of (i + 1) x (sum of the row's elements), modulo 2^64.
The bits of an element are read as an integer. Integers give the same sum in any order, so shards add up to the whole. A
row in another place has another factor. Different tensors practically never have equal fingerprints by chance; but this
does not protect against somebody who makes them equal on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

from recipe import group

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def of_rank(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Of the part of each tensor that this rank stores."""
    return {name: int(_local(tensor).item()) for name, tensor in tensors.items()}


def of_all(tensors: Mapping[str, torch.Tensor]) -> dict[str, int]:
    """Of whole tensors: one copy of each, over all ranks. A collective: all ranks give equal names in equal order."""
    sums = torch.zeros(len(tensors), dtype=torch.int64, device=group.DEVICE)
    for index, tensor in enumerate(tensors.values()):
        if _is_first_copy(tensor):
            sums[index] = _local(tensor)
    if dist.is_initialized():
        dist.all_reduce(sums)
    return dict(zip(tensors, sums.tolist(), strict=True))


def _is_first_copy(tensor: torch.Tensor) -> bool:
    if not isinstance(tensor, DTensor):
        return group.RANK == 0
    places = zip(tensor.placements, tensor.device_mesh.get_coordinate() or [], strict=True)
    return all(at == 0 for placement, at in places if isinstance(placement, Replicate))


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """A sum of this rank's part, int64, on its device."""
    first_row = 0
    if isinstance(tensor, DTensor):
        _, offset = compute_local_shape_and_global_offset(tensor.shape, tensor.device_mesh, tensor.placements)
        first_row = offset[0] if offset else 0
        tensor = tensor.to_local()
    tensor = tensor.detach()
    if tensor.numel() == 0:
        return torch.zeros((), dtype=torch.int64, device=tensor.device)
    bits = (
        tensor.contiguous().reshape(tensor.shape[0] if tensor.dim() else 1, -1).view(_INTEGERS[tensor.element_size()])
    )
    rows = bits.sum(dim=1, dtype=torch.int64)
    return (rows * torch.arange(first_row + 1, first_row + 1 + len(rows), device=rows.device)).sum()
