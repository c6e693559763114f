"""States: parameters, gradients and optimizer tensors that this rank holds, in bytes, counted from the live tensors.

This is not the peak: activations, gathered copies and buffers are not in it. It is the part of a rank's memory that
sharding divides. It is the same on a CPU and on a GPU. bringup.formulae.memory.states predicts it exactly.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback


class HeldStates(TrainerCallback):
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

    Call it while gradients are there: after optimizer.step(), before zero_grad(). Of a sharded tensor it counts the
    local part with its padding. Of a view it counts the whole buffer that the view keeps alive.
    """
    parameters = list(model.parameters())
    groups: dict[str, Iterable[Any]] = {
        "parameters": parameters,
        "gradients": [p.grad for p in parameters if p.grad is not None],
        "optimizer": [
            value for state in _states(optimizer).values() for value in state.values() if torch.is_tensor(value)
        ],
    }
    seen: set[int] = set()
    return {name: sum(_new_bytes(tensor, seen) for tensor in tensors) for name, tensors in groups.items()}


def _states(optimizer: Any) -> dict[Any, dict[str, Any]]:
    wrapped = getattr(optimizer, "optimizer", optimizer)  # accelerate's AcceleratedOptimizer
    return dict(wrapped.state)


def _new_bytes(tensor: torch.Tensor, seen: set[int]) -> int:
    local = tensor.detach()
    storage = (local.to_local() if isinstance(local, DTensor) else local).untyped_storage()
    if storage._cdata in seen:
        return 0
    seen.add(storage._cdata)
    return storage.nbytes()
