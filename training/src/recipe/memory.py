"""The memory of a rank: refuses what cannot fit before any weight is allocated, counts states, names who filled it.

States are the part that sharding divides: parameters, gradients and optimizer tensors, on a CPU as on a GPU. What they
need comes from bringup.training.formulae.memory, and is exact: where they alone do not fit, a refusal is certain.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from bringup.kernel.characters import many
from bringup.kernel.errors import ModelError
from bringup.training.formulae import memory
from bringup.training.formulae.models import job_of
from bringup.training.records import ModelShape, RunArgs
from memory_limits import host_available
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from recipe import GIB, group, model_shape
from recipe.rank import node_name, one_line
from recipe.strategy import Refused


@dataclass(frozen=True)
class Footprint:
    """Predicted from the model, in bytes, for the rank with the most. peak None: `reason` says why."""

    shape: ModelShape
    states: memory.Parts
    peak: memory.Parts | None
    reason: str | None


def footprint(model: Any, resolved: RunArgs, *, reads_checkpoint: bool = False) -> Footprint:
    """Compute the footprint. model: on the meta device. The same on every rank: nothing is asked of the machine."""
    shape = model_shape.shape_of(model, resolved.model, resolved.sequence_length)
    job = job_of(resolved, reads_checkpoint=reads_checkpoint)
    peak, reason = None, shape.not_covered
    if reason is None:
        try:
            peak = memory.peak(shape, job)
        except ModelError as error:
            reason = str(error)
    return Footprint(shape, memory.states(shape, job.shards), peak, reason)


def require(needed: int, resolved: RunArgs, hosts: list[str]) -> None:
    """Refuse, on every rank, what cannot fit. needed: bytes of a rank, of its GPU or of its host, which the ranks of a
    node share. `hosts`: index = rank. A collective."""
    free = torch.cuda.mem_get_info(group.DEVICE)[0] if group.CUDA else None
    everyone = group.gather((free, *host_available()), tuple[int | None, int, str])
    if group.CUDA:
        available, rank = min((free or 0, rank) for rank, (free, _, _) in enumerate(everyone))
        ranks, what, whose = 1, "device memory per rank", f"free on {hosts[rank]} (rank {rank})"
    else:
        left = {host: (available, of) for host, (_, available, of) in zip(hosts, everyone, strict=True)}
        host = min(left, key=lambda host: left[host][0] - hosts.count(host) * needed)
        ranks, (available, of) = hosts.count(host), left[host]
        what, whose = f"host memory for {many(ranks, 'rank')} of a node", f"on {host} ({of})"
    if ranks * needed > available:
        raise Refused(
            f"{resolved.model} as {job_of(resolved).kind} on {many(len(hosts), 'rank')}: expected room for "
            f"{ranks * needed / GIB:.1f} GiB of {what}, observed {available / GIB:.1f} GiB {whose}: "
            "`bringup advise` says which strategy, rows and options fit"
        )


class ModelStates(TrainerCallback):
    """Counts once, after the first update and before its gradients are dropped: in the warm-up, which is not timed."""

    total = 0

    def on_optimizer_step(self, *args: Any, model: Any, optimizer: Any, **kwargs: Any) -> None:  # type: ignore[override]
        if not self.total:
            self.total = sum(states_bytes(model, optimizer).values())


def states_bytes(model: torch.nn.Module, optimizer: Any) -> dict[str, int]:
    """Return bytes of the storages behind parameters, gradients and optimizer, each storage once: of a sharded tensor
    the local part with its padding, of a view the whole buffer that it keeps alive."""
    parameters = list(model.parameters())
    states = getattr(getattr(optimizer, "optimizer", optimizer), "state", {})  # of what accelerate wraps, or of none
    groups: dict[str, Iterable[Any]] = {
        "parameters": parameters,
        "gradients": [p.grad for p in parameters if p.grad is not None],
        "optimizer": [value for state in states.values() for value in state.values() if torch.is_tensor(value)],
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


@contextmanager
def memory_by_part(trainer: Any) -> Iterator[None]:
    """Let a torch.OutOfMemoryError say in one line where, what held how much, and what the allocator said. Where the
    host's memory is full, the kernel kills."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        held = states_bytes(trainer.model, trainer.optimizer)
        if group.CUDA:
            held["activations and other"] = torch.cuda.memory_allocated() - sum(held.values())
            held["reserved in all"] = torch.cuda.memory_reserved()
        parts = ", ".join(f"{name} {size / GIB:.2f} GiB" for name, size in held.items())
        where = f"out of device memory on {node_name()} ({group.DEVICE})"
        raise torch.OutOfMemoryError(f"{where}: {parts}; {one_line(str(error))}") from error
