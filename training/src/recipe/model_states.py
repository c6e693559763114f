"""Parameters, gradients and optimizer tensors that this rank holds: counted after the first step, and named when the
memory is full.

States are the part of a rank's memory that sharding divides. Activations, gathered copies and buffers are not in them.
They are the same on a CPU and on a GPU. bringup.formulae.memory.states predicts them exactly.
"""

from __future__ import annotations

import pickle
import resource
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from recipe import GIB, group
from recipe.rank import node_name, one_line, say


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
    """parameters, gradients, optimizer -> bytes of the storages behind them, each storage once.

    Gradients are there after optimizer.step() and before zero_grad(). Of a sharded tensor it counts the local part with
    its padding. Of a view it counts the whole buffer that the view keeps alive.
    """
    return {name: sum(each.nbytes() for each in storages) for name, storages in _storages(model, optimizer).items()}


def _storages(model: torch.nn.Module, optimizer: Any) -> dict[str, list[torch.UntypedStorage]]:
    """As states_bytes, the storages themselves."""
    parameters = list(model.parameters())
    groups: dict[str, Iterable[Any]] = {
        "parameters": parameters,
        "gradients": [p.grad for p in parameters if p.grad is not None],
        "optimizer": [
            value for state in states_of(optimizer).values() for value in state.values() if torch.is_tensor(value)
        ],
    }
    storages: dict[str, list[torch.UntypedStorage]] = {name: [] for name in groups}
    seen: set[int] = set()
    for name, tensors in groups.items():
        for tensor in tensors:
            local = tensor.detach()
            storage = (local.to_local() if isinstance(local, DTensor) else local).untyped_storage()
            if storage._cdata not in seen:
                seen.add(storage._cdata)
                storages[name].append(storage)
    return storages


def checksum(model: torch.nn.Module) -> float:
    """Sum over the parameter elements that this rank stores, in float64."""
    local = (p.to_local() if isinstance(p, DTensor) else p for p in model.parameters())
    return sum(p.detach().sum(dtype=torch.float64).item() for p in local)


def states_of(optimizer: Any) -> dict[Any, dict[str, Any]]:
    """By parameter, then name; empty before the first step and without an optimizer."""
    wrapped = getattr(optimizer, "optimizer", optimizer)  # accelerate's AcceleratedOptimizer
    return dict(getattr(wrapped, "state", {}))


OTHER = "activations and other"
LARGEST_SNAPSHOT = 64 * 2**20  # bytes; of some ten thousand allocations it is a few MiB
MOST_NAMED = 4


class OutOfMemory(RuntimeError):
    """Device or host memory ran out. One line: where, what held how much, and what the allocator said."""


@contextmanager
def memory_by_part(trainer: Any, run_dir: Path) -> Iterator[None]:
    """Turn torch.OutOfMemoryError and MemoryError into OutOfMemory; of a GPU, keep a snapshot too."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        if group.CUDA:
            say(f"device memory: {_snapshot(trainer, run_dir / 'raw')}", stream=sys.stderr)
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
        held[OTHER] = torch.cuda.memory_allocated() - sum(held.values())
        held["reserved in all"] = torch.cuda.memory_reserved()
    return ", ".join(f"{name} {size / GIB:.2f} GiB" for name, size in held.items())


def _snapshot(trainer: Any, folder: Path) -> str:
    """Keep torch's snapshot, for https://pytorch.org/memory_viz, and name the largest live allocations. Nothing of this
    repository reads the file. What fails here must not hide the error that it explains."""
    try:
        seen = torch.cuda.memory._snapshot()
        part = {
            storage.data_ptr(): name
            for name, storages in _storages(trainer.model, trainer.optimizer).items()
            for storage in storages
        }
        live = Counter(
            (block["requested_size"], part.get(block["address"], OTHER))
            for segment in seen["segments"]
            for block in segment["blocks"]
            if block["state"] == "active_allocated"
        )
        largest = sorted(live, key=lambda each: each[0] * live[each], reverse=True)[:MOST_NAMED]
        named = ", ".join(f"{live[each]} x {each[0] / GIB:.3g} GiB of {each[1]}" for each in largest)
        pickled = pickle.dumps(seen)
        if len(pickled) > LARGEST_SNAPSHOT:
            return f"largest: {named}; a snapshot of {len(pickled) / 2**20:.0f} MiB was not kept"
        file = folder / f"memory.rank{group.RANK}.pickle"
        file.write_bytes(pickled)
        return f"largest: {named}; all in raw/{file.name}"
    except Exception as error:  # noqa: BLE001  # a private name of torch, a full disk
        return one_line(f"no snapshot: {type(error).__name__}: {error}")
