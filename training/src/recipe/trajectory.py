"""What the steps so far produced: loss and gradient norm of the global batch, and the rows this rank trained on.

Tensors of single steps stay on the device, and no step waits to read one, until settle() turns them into numbers: at a
checkpoint, which keeps them, and at the end. So a resumed run knows the steps before it.

A loss or a gradient that is not a number ends the training soon, on the rank where it began. Every CHECK_EVERY steps
the losses and norms of the last steps are copied to the host, and checked in a later step, when they have arrived. A
rank's loss is its own. The norm is that of the averaged gradient, so the NaN of one rank reaches all. This is how a
rank whose own loss was finite when the norm became NaN is told from the rank whose loss was not.
"""

from __future__ import annotations

import math
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
    """Raises NotFinite from on_step_end."""

    def __init__(self, trajectory: Trajectory) -> None:
        self.recent = trajectory.recent
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


class Trajectory:
    """loss, grad_norm: index = step - 1, the same on every rank. rows: of this rank, in order, repeats included.

    loss_dtype: of the losses as training returned them; None before the first.
    """

    def __init__(self) -> None:
        self.loss: list[float] = []
        self.grad_norm: list[float] = []
        self.rows: list[int] = []
        self.loss_dtype: torch.dtype | None = None
        # of the micro-steps of this step, which become one tensor each: a small one takes 512 bytes of a GPU's memory
        self._rows: list[torch.Tensor] = []
        self._shares: list[torch.Tensor] = []
        # per step: this rank's share of the loss, the norm of the averaged gradient before clipping, rows
        self._steps: list[tuple[torch.Tensor, Any, torch.Tensor]] = []

    def add_rows(self, rows: torch.Tensor) -> None:
        """Add the rows of each micro-step."""
        self._rows.append(rows)

    def add_loss(self, loss: torch.Tensor) -> None:
        """Add the loss after each micro-step."""
        self._shares.append(loss)
        self.loss_dtype = loss.dtype

    def add_norm(self, norm: Any) -> None:
        """Add the norm after each optimizer step."""
        loss = torch.stack(self._shares).double().sum()
        self._steps.append((loss, norm, torch.cat(self._rows)))
        self._rows.clear()
        self._shares.clear()

    def recent(self, most: int) -> tuple[torch.Tensor, list[Any]]:
        """Return (this rank's share of the loss, gradient norms) of the last steps kept, `most` or less; on device."""
        recent = self._steps[-most:]
        return torch.stack([step[0] for step in recent]) if recent else torch.empty(0), [step[1] for step in recent]

    def settle(self) -> None:
        """Take over the steps since the last time. A collective. Raises NotFinite at a loss of NaN or Inf."""
        if not self._steps:
            return
        losses, own_norms, rows = zip(*self._steps, strict=True)
        # the mean of the shares over the ranks is the loss of the global batch
        mine = torch.stack(losses).tolist()
        # norms are equal on all ranks, unless one has gradients of its own: the highest; NaN stays NaN
        whole = [norm.full_tensor() if isinstance(norm, DTensor) else norm for norm in own_norms]
        of_ranks = group.gather(torch.stack(whole).double().tolist())
        norms = torch.tensor(of_ranks, dtype=torch.float64).amax(dim=0).tolist()
        judge(len(self.loss) + 1, mine, norms)
        self.loss += [math.fsum(step) / len(step) for step in zip(*group.gather(mine), strict=True)]
        self.grad_norm += norms
        self.rows += torch.cat(rows).tolist()
        self._steps.clear()
