"""Counts parameters, gradients and optimizer tensors of this rank after the first step; names them in a full memory.

States are the part of a rank's memory that sharding divides. Activations, gathered copies and buffers are not in them.
They are the same on a CPU and on a GPU. bringup.formulae.memory.states predicts them exactly.
"""

from __future__ import annotations

import resource
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from recipe import GIB, group
from recipe.rank import node_name, one_line


class ModelStates(TrainerCallback):
    """Counts once, after the first update and before its gradients are dropped: in the warm-up, which is not timed."""

    def __init__(self) -> None:
        self.total = 0

    def on_optimizer_step(
        self, args: Any, state: Any, control: Any, *, model: Any, optimizer: Any, **kwargs: Any
    ) -> None:
        if not self.total:
            self.total = sum(states_bytes(model, optimizer).values())


def states_bytes(model: torch.nn.Module, optimizer: Any) -> dict[str, int]:
    """Return bytes of the storages behind parameters, gradients and optimizer, each storage once.

    Gradients are there after optimizer.step() and before zero_grad(). Of a sharded tensor it counts the local part with
    its padding. Of a view it counts the whole buffer that the view keeps alive.
    """
    parameters = list(model.parameters())
    groups: dict[str, Iterable[Any]] = {
        "parameters": parameters,
        "gradients": [p.grad for p in parameters if p.grad is not None],
        "optimizer": [
            value for state in states_of(optimizer).values() for value in state.values() if torch.is_tensor(value)
        ],
    }
    sizes, seen = dict.fromkeys(groups, 0), set()
    for name, tensors in groups.items():
        for tensor in tensors:
            local = tensor.detach()
            storage = (local.to_local() if isinstance(local, DTensor) else local).untyped_storage()
            if storage._cdata not in seen:
                seen.add(storage._cdata)
                sizes[name] += storage.nbytes()
    return sizes


def checksum(model: torch.nn.Module) -> float:
    """Sum over the parameter elements that this rank stores, in float64."""
    local = (p.to_local() if isinstance(p, DTensor) else p for p in model.parameters())
    return sum(p.detach().sum(dtype=torch.float64).item() for p in local)


def states_of(optimizer: Any) -> dict[Any, dict[str, Any]]:
    """Return states by parameter, then name; empty before the first step and without an optimizer."""
    wrapped = getattr(optimizer, "optimizer", optimizer)  # accelerate's AcceleratedOptimizer
    return dict(getattr(wrapped, "state", {}))


class OutOfMemory(RuntimeError):
    """Device or host memory ran out. One line: where, what held how much, and what the allocator said."""


@contextmanager
def memory_by_part(trainer: Any) -> Iterator[None]:
    """Turn torch.OutOfMemoryError and MemoryError into OutOfMemory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise OutOfMemory(
            f"out of device memory on {node_name()} ({group.DEVICE}): {_parts(trainer)}; {one_line(str(error))}"
        ) from error
    except MemoryError as error:
        resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        raise OutOfMemory(
            f"out of host memory on {node_name()}: this rank held {resident:.1f} GiB at most, of it {_parts(trainer)}"
        ) from error


def _parts(trainer: Any) -> str:
    """GiB on this rank: parameters, gradients, optimizer states, and on a GPU the rest and what torch holds in all."""
    held = states_bytes(trainer.model, trainer.optimizer)
    if group.CUDA:
        held["activations and other"] = torch.cuda.memory_allocated() - sum(held.values())
        held["reserved in all"] = torch.cuda.memory_reserved()
    return ", ".join(f"{name} {size / GIB:.2f} GiB" for name, size in held.items())
