"""A loss or a gradient that is not a number ends the training soon, on the rank where it began. No step waits for it.

Every CHECK_EVERY steps the losses and norms of the last steps are copied from the device to the host. They are checked
in a later step, when they have arrived. So the training ends at most about 2 x CHECK_EVERY steps after the first NaN.
The last steps are checked when the training is over (trajectory.py).

A rank's loss is its own. The norm is that of the averaged gradient, so the NaN of one rank reaches all. This is how a
rank whose own loss was finite when the norm became NaN is told from the rank whose loss was not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers import TrainerCallback

from recipe import group

CHECK_EVERY = 10  # steps
OWN_LOSS_FINITE = "the loss of this rank was finite"  # a victim's words: bringup.evidence.launcher knows them


class NotFinite(RuntimeError):
    """Training produced a NaN or an infinity. One line: the step, and whether it began on this rank."""


class FiniteCheck(TrainerCallback):
    """Raises NotFinite from on_step_end. `recent`: number of steps -> losses and norms (Trajectory.recent)."""

    def __init__(self, recent: Callable[[int], tuple[torch.Tensor, list[Any]]]) -> None:
        self.recent = recent
        self.on_the_way: tuple[int, Sent] | None = None  # first step; losses and norms

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._look()
        if state.global_step % CHECK_EVERY == 0 and self.on_the_way is None:
            self._send(state.global_step)
            self._look()  # on a CPU they are there already

    def _look(self) -> None:
        if self.on_the_way is not None and self.on_the_way[1].arrived():
            (first, sent), self.on_the_way = self.on_the_way, None
            judge(first, *(values.tolist() for values in sent.values))

    def _send(self, step: int) -> None:
        losses, norms = self.recent(CHECK_EVERY)
        if norms:
            self.on_the_way = step - len(norms) + 1, Sent(losses, torch.stack([local(norm) for norm in norms]))


class Sent:
    """Numbers on their way to the host, behind what the device has to do until now. No rank waits for them."""

    def __init__(self, *values: torch.Tensor) -> None:
        self.values = [_to_host(each.double()) for each in values]
        self.event: Any = None
        if group.CUDA:
            self.event = torch.cuda.Event()
            self.event.record()

    def arrived(self) -> bool:
        return self.event is None or bool(self.event.query())

    def wait(self) -> Sent:
        """Wait until they have arrived, and return them."""
        if self.event is not None:
            self.event.synchronize()
        return self


def _to_host(values: torch.Tensor) -> torch.Tensor:
    if not values.is_cuda:
        return values
    host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    return host.copy_(values, non_blocking=True)


def local(norm: Any) -> torch.Tensor:
    """Return this rank's part of a norm: all under DDP, a part of the sum under FSDP. Needs no collective."""
    return norm.to_local() if isinstance(norm, DTensor) else norm


def judge(first_step: int, losses: list[float], norms: list[float]) -> None:
    """Raise NotFinite at the first step whose loss on this rank, or whose norm, is not a number."""
    for step, (loss, norm) in enumerate(zip(losses, norms, strict=True), start=first_step):
        if not math.isfinite(loss):
            raise NotFinite(
                f"step {step}: the loss of this rank is {loss}; a faulty GPU or bad rows if it is the only one, "
                "else lower --learning-rate"
            )
        if not math.isfinite(norm):
            raise NotFinite(
                f"step {step}: the gradient norm is {norm}, {OWN_LOSS_FINITE}; where all ranks say so, lower "
                "--learning-rate"
            )
