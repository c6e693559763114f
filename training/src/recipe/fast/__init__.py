"""The recipes plain and fast: what each changes of a training as Trainer makes it (training/README.md).

plain: no step waits for the device. Trainer's own waits are switched off in workload.Run.common_arguments; that of
       transformers is bypassed here. And DDP has one copy of the gradients: its buckets (RecipeTrainer).
fast:  plain, and what makes one GPU faster without changing what is learnt: compiled decoder blocks from the second
       step on, and chunked_loss.py.

`recipe` is recorded with what it turned on (`tuning`), and compare refuses to mix recipes. The wait: in every forward
pass transformers reads position ids back from the device, to find out whether several sequences share a row; here they
are one. The name is private: where the installed version lacks it, its wait stays, and `tuning` says so.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from bringup.training.formulae.models import CHUNKED_LOSS
from bringup.training.records import ON
from transformers import TrainerCallback, masking_utils

from recipe import group
from recipe.arguments import FAST_WARMUP, SLOW, Args
from recipe.data import first_line
from recipe.fast.chunked_loss import ChunkedLoss
from recipe.observed_strategy import decoder_layers
from recipe.rank import one_line

NO_LOOK, COMPILE = "no look at position ids", "compile per block"
LOOK = "find_packed_sequence_indices"


def choose(args: Args) -> dict[str, str]:
    """Return what is changed -> ON, or why it cannot. A collective: runs are compared, so it is equal on every rank."""
    there = hasattr(masking_utils, LOOK)
    changes = {NO_LOOK: None if there else f"its wait stays: {masking_utils.__name__}.{LOOK} is not in this version"}
    if args.recipe == "fast":
        with group.patience(SLOW * args.timeout_s, args.timeout_s):
            changes |= {COMPILE: next(filter(None, group.gather(no_compiler())), None), CHUNKED_LOSS: None}
    return {what: why_not or ON for what, why_not in changes.items()}


@contextlib.contextmanager
def without_waits() -> Iterator[None]:
    """Remove that look inside: for models that are given rows of one sequence each, without position ids."""
    look = getattr(masking_utils, LOOK, None)
    if look is not None:
        setattr(masking_utils, LOOK, lambda *args, **kwargs: None)  # a row is one sequence
    try:
        yield
    finally:
        if look is not None:
            setattr(masking_utils, LOOK, look)


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

    def on_step_end(self, args: Any, state: Any, control: Any, *, model: Any, **kwargs: Any) -> None:  # type: ignore[override]
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
