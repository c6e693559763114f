"""Compiled decoder blocks, from the second step on."""

from typing import Any

import torch
from transformers import TrainerCallback

from recipe import group
from recipe.arguments import FAST_WARMUP, SLOW
from recipe.data import first_line
from recipe.fast.chunked_loss import ChunkedLoss
from recipe.observed_strategy import decoder_layers
from recipe.rank import one_line


def no_compiler() -> str | None:
    """Compile something small, and say what this node lacks for it: a compiler, Python.h, Triton."""
    try:
        torch.compile(lambda tensor: tensor + 1)(torch.ones(2, device=group.DEVICE))
    except Exception as error:  # noqa: BLE001  # whatever Dynamo, Inductor and Triton say
        return one_line(f"cannot compile here: {first_line(error)}")
    return None


class CompileBlocks(TrainerCallback):
    """Compiles when the first step is over, in place, so that parameters keep their names. During it every block has a
    hook of its own (observed_strategy.FirstStep): Dynamo would compile up to eight, and then none for good."""

    def __init__(self, timeout_s: int, loss: ChunkedLoss | None = None) -> None:
        self.timeout_s, self.loss = timeout_s, loss
        self.steps = 0  # that ended

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.steps == 1:  # not as the first step ends: a checkpoint of it gives back the usual patience
            # a rank with a cold cache or a slow disk compiles for minutes, and the others wait for it in a collective
            group.set_timeouts(SLOW * self.timeout_s)

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.steps == FAST_WARMUP - 1:
            group.wait_for_device()  # the host is ahead of it: another rank may still compile

    def on_step_end(self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any) -> None:
        self.steps += 1
        if self.steps == FAST_WARMUP:  # all ranks have compiled
            group.set_timeouts(self.timeout_s)
        if self.steps == 1:
            # else DDP's part of Dynamo cuts each block at the buckets of its gradients, and little is fused: blocks are
            # small enough for the reduction to begin in time
            torch._dynamo.config.optimize_ddp = False
            for block in decoder_layers(model):
                block.compile(dynamic=False)
            if self.loss is not None:
                self.loss.compile()
