"""What filled the memory, said by the rank that ran out of it."""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from recipe import group
from recipe.rank import node_name, one_line

GIB = 2**30


class OutOfMemory(RuntimeError):
    """Device or host memory ran out. One line: where, what held how much, and what the allocator said."""


@contextmanager
def memory_by_part(trainer: Any) -> Iterator[None]:
    """Turn torch.OutOfMemoryError and MemoryError into OutOfMemory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"out of device memory on {node_name()} ({group.DEVICE}): {parts(trainer)}; {one_line(str(error))}"
        ) from error
    except MemoryError as error:
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        raise OutOfMemory(
            f"out of host memory on {node_name()}: this rank held {resident:.1f} GiB at most, of it {parts(trainer)}"
        ) from error


def parts(trainer: Any) -> str:
    """GiB on this rank: parameters, gradients, optimizer states, and on a GPU the rest and what torch holds in all."""
    parameters = list(trainer.model.parameters())
    states = trainer.optimizer.state if trainer.optimizer is not None else {}
    held = {
        "parameters": _bytes(parameters),
        "gradients": _bytes(p.grad for p in parameters),
        "optimizer": _bytes(value for state in states.values() for value in state.values()),
    }
    if group.CUDA:
        held["activations and other"] = torch.cuda.memory_allocated() - sum(held.values())
        held["reserved in all"] = torch.cuda.memory_reserved()
    return ", ".join(f"{name} {size / GIB:.2f} GiB" for name, size in held.items())


def _bytes(tensors: Iterable[Any]) -> int:
    local = (t.to_local() if isinstance(t, DTensor) else t for t in tensors if isinstance(t, torch.Tensor))
    return sum(t.numel() * t.element_size() for t in local)
