"""The recipes plain and fast: what each changes of a training as Trainer makes it (training/README.md).

plain: no step waits for the device. Trainer's own waits are switched off in workload.Run.common_arguments; those of
       transformers and accelerate are bypassed here. And DDP has one copy of the gradients: its buckets.
fast:  plain, and what makes one GPU faster without changing what is learnt: compiled blocks, the loss in chunks. The
       optimizer is fused in both, and on Hopper and Blackwell torch (2.13) itself tries cuDNN's attention first.

`recipe` is recorded with what it turned on (`tuning`), and compare refuses to mix recipes.

In every forward pass transformers reads position ids back from the device, to find out whether several sequences share
a row. Here the documents of a row are one sequence. And accelerate's loader of a resumed training waits for its copies,
which nobody needs. The names are private: where the installed version lacks one, its wait stays, and `tuning` says so.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import importlib.util
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from bringup.formulae.models import CHUNKED_LOSS
from bringup.records import ON
from torch.nn.parallel import DistributedDataParallel
from transformers import TrainerCallback

from recipe import group
from recipe.arguments import FAST_WARMUP, SLOW, Args
from recipe.fast import chunked_loss
from recipe.observed_strategy import decoder_layers

NO_LOOK, COMPILE = "no look at position ids", "compile per block"


def choose(args: Args) -> dict[str, str]:
    """Return what is changed -> ON, or why it cannot. Equal under every strategy: runs are compared."""
    waits = lacking()
    changes = {NO_LOOK: f"its wait stays: {', '.join(waits)} is not in this version" if waits else None}
    if args.recipe == "fast":
        changes |= {COMPILE: _no_compiler(), CHUNKED_LOSS: None}
    return {what: why_not or ON for what, why_not in changes.items()}


def _no_compiler() -> str | None:
    """Say what this node lacks to compile: a compiler or Python.h. A GPU needs them too, for the stubs of Triton."""
    compilers = ("gcc", "clang") if group.CUDA else ("g++",)
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if group.CUDA and importlib.util.find_spec("triton") is None:
        return "needs triton, which is not installed"
    if not os.environ.get("CC" if group.CUDA else "CXX") and not any(map(shutil.which, compilers)):
        return f"needs {' or '.join(compilers)}, and there is none on this node"
    if not header.is_file():
        return f"needs {header}, and there is none on this node (package python3-dev or python3-devel)"
    if not group.CUDA and " " in sys.prefix:
        return "torch links its CPU kernels by a path, and breaks it at the space in this one"
    return None


def on(tuning: Mapping[str, str], what: str) -> bool:
    return tuning.get(what) == ON


def _copies_as_before(skip: Callable[..., Any]) -> Callable[..., Any]:
    """accelerate's skip_first_batches makes a new loader, which waits for its copies even if the given one does not."""

    @functools.wraps(skip)
    def skip_and_keep(loader: Any, *args: Any, **kwargs: Any) -> Any:
        shortened = skip(loader, *args, **kwargs)
        if hasattr(loader, "_non_blocking"):
            shortened._non_blocking = loader._non_blocking
        return shortened

    return skip_and_keep


REPLACED: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (  # the answers for a row that is one sequence
    ("transformers.masking_utils", "find_packed_sequence_indices", lambda question: lambda *args, **kwargs: None),
    ("transformers.modeling_flash_attention_utils", "_is_packed_sequence", lambda question: lambda *args, **kw: False),
    ("transformers.trainer", "skip_first_batches", _copies_as_before),
)


def lacking() -> list[str]:
    """Name what the installed libraries lack, so that its wait stays."""
    return [f"{module}.{name}" for module, name, _ in REPLACED if not hasattr(importlib.import_module(module), name)]


@contextlib.contextmanager
def without_waits() -> Iterator[None]:
    """Remove these waits inside. For models that are given rows of one sequence each, without position ids."""
    with contextlib.ExitStack() as undo:
        for module_name, name, replacement in REPLACED:
            module = importlib.import_module(module_name)
            if hasattr(module, name):
                original = getattr(module, name)
                undo.callback(setattr, module, name, original)
                setattr(module, name, replacement(original))
        yield


class CompileBlocks(TrainerCallback):
    """Compiles when the first step is over, in place, so that parameters keep their names.

    During the first step every block has a hook of its own (observed_strategy.FirstStep). Dynamo would compile each
    block anew, up to its limit of eight, and then leave all of them uncompiled for good.
    """

    def __init__(self, timeout_s: int, loss: chunked_loss.ChunkedLoss | None = None) -> None:
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


class KeepGradients(TrainerCallback):
    """Trainer's zero_grad() would drop them. DDP makes them views of its buckets in a step's last micro-step only, so
    that those of the micro-steps before would need memory of their own."""

    def __init__(self, wrapped: Callable[[], Any]) -> None:
        self.wrapped = wrapped  # gives the model that DDP wraps

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        model = self.wrapped()
        if isinstance(model, DistributedDataParallel):
            model.zero_grad = functools.partial(model.zero_grad, set_to_none=False)


def callbacks(
    tuning: Mapping[str, str], timeout_s: int, wrapped: Callable[[], Any], loss: chunked_loss.ChunkedLoss | None = None
) -> list[TrainerCallback]:
    """Return them for the trainer's list, after observed_strategy.FirstStep: it has to have let go of the blocks."""
    return [KeepGradients(wrapped), *([CompileBlocks(timeout_s, loss)] if on(tuning, COMPILE) else [])]
