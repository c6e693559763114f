"""What the steps so far produced: loss and gradient norm of the global batch, and the rows this rank trained on.

Tensors of single steps stay on the device, and no step waits to read one, until settle() turns them into numbers: at a
checkpoint, which keeps them, and at the end. So a resumed run knows the steps before it, and its metrics hold all of
them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from recipe import group
from recipe.watch import finite


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
        finite.judge(len(self.loss) + 1, mine, norms)
        self.loss += [math.fsum(step) / len(step) for step in zip(*group.gather(mine), strict=True)]
        self.grad_norm += norms
        self.rows += torch.cat(rows).tolist()
        self._steps.clear()
