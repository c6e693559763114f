"""What the steps so far produced: loss and gradient norm of the global batch, and the rows this rank trained on.

Tensors of single steps stay on the device until settle() turns them into numbers: at a checkpoint, which keeps them,
and at the end. So a resumed run knows the steps before it, and its metrics hold all of them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from recipe import finite, group

if TYPE_CHECKING:
    from recipe.trainer import RecipeTrainer


class Trajectory:
    """loss, grad_norm: index = step - 1, the same on every rank. rows: of this rank, in order, repeats included.

    padding: tokens of padding per step, of this rank, and of this process's steps only, as are step times.
    """

    def __init__(self) -> None:
        self.loss: list[float] = []
        self.grad_norm: list[float] = []
        self.rows: list[int] = []
        self.padding: list[int] = []

    def settle(self, trainer: RecipeTrainer) -> None:
        """Take over the steps since the last time. A collective. Raises NotFinite at a loss of NaN or Inf."""
        if not trainer.micro_losses:
            return
        mine, norms = trainer.step_losses(), trainer.step_grad_norms()
        finite.judge(len(self.loss) + 1, mine, norms)
        self.loss += [math.fsum(step) / len(step) for step in zip(*group.gather(mine), strict=True)]
        self.grad_norm += norms
        self.rows += trainer.row_ids()
        self.padding += trainer.step_padding()
        trainer.forget_steps()
