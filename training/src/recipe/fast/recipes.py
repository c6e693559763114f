"""The recipes: stock, plain and fast. What each turns on, and why (training/README.md: the changes of fast).

stock: Trainer with its own defaults. Only the workload (model, data, batch, precision, strategy, schedule) is given.
plain: without the waits for the device that Trainer and the model put into every step.
fast:  plain, and what makes one GPU faster without changing what is learnt: compiled blocks, the loss in chunks. The
       optimizer is no part of it: it is fused in every recipe. Nor is the order of the attention kernels: on Hopper and
       Blackwell torch (2.13) itself tries cuDNN's first.

So losses agree within the tolerance of the data type. `recipe` is recorded with every change against stock (`tuning`),
and compare refuses to mix recipes.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import sys
import sysconfig
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from bringup.formulae.models import CHUNKED_LOSS
from bringup.records import ON
from torch.nn.parallel import DistributedDataParallel
from transformers import TrainerCallback

from recipe import group
from recipe.arguments import FAST_WARMUP, SLOW, Args
from recipe.fast import chunked_loss, no_device_waits
from recipe.observed_strategy import decoder_layers

NO_LOGGING = "no logging by Trainer"
NO_LOOK, BUCKETS = "no look at position ids", "gradients in DDP's buckets"
COMPILE = "compile per block"

# What plain changes of Trainer's arguments, each for the reason above it. The patches of no_device_waits.py belong
# to it too: in every forward pass transformers asks the device whether a row holds several sequences. So do BUCKETS: by
# default DDP has two copies of the gradients, 4 bytes more per parameter.
PLAIN: dict[str, dict[str, Any]] = {
    # the default waits for the device in every batch, and the time would count as fetching
    "copies without waiting": {"accelerator_config": {"non_blocking": True}},
    # it reads the loss from the device; recorded elsewhere
    NO_LOGGING: {"logging_strategy": "no"},
    # it reads every loss from the device, and puts a mean in the place of a NaN
    "no NaN filter": {"logging_nan_inf_filter": False},
    # the progress is in raw/progress.jsonl and on the screen
    "no progress bar": {"disable_tqdm": True},
    # under DDP the default walks the graph in every step
    "no search for unused parameters": {"ddp_find_unused_parameters": False},
    # under DDP all ranks wait for rank 0's before each step, and they are constants
    "no broadcast of buffers": {"ddp_broadcast_buffers": False},
    # all ranks wait for it before each step, and each has equally many
    "no count of the tokens of all ranks": {"average_tokens_across_devices": False},
}


def choose(args: Args) -> dict[str, str]:
    """Return what is changed against stock -> ON, or why it cannot. Equal under every strategy: runs are compared."""
    if args.recipe == "stock":
        return {}
    waits = no_device_waits.lacking()
    wait_stays = f"its wait stays: {', '.join(waits)} is not in this version" if waits else None
    changes = {**dict.fromkeys(_plain(args)), NO_LOOK: wait_stays, BUCKETS: None}
    if args.recipe == "fast":
        changes |= {COMPILE: _no_compiler(), CHUNKED_LOSS: chunked_loss.cannot(_config(args))}
    return {what: why_not or ON for what, why_not in changes.items()}


def _plain(args: Args) -> dict[str, dict[str, Any]]:
    """PLAIN; where something is reported (--report-to) Trainer logs."""
    return {what: given for what, given in PLAIN.items() if not (args.report_to and what == NO_LOGGING)}


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


def _config(args: Args) -> dict[str, Any]:
    if args.model_config is not None:
        return dict(json.loads(args.model_config.read_text()))
    from transformers import PreTrainedConfig

    try:
        return dict(PreTrainedConfig.get_config_dict(args.model)[0])
    except OSError:
        return {}  # the model cannot be loaded: that is said where it is, by all ranks alike


def on(tuning: Mapping[str, str], what: str) -> bool:
    return tuning.get(what) == ON


def trainer_arguments(args: Args) -> dict[str, Any]:
    """Return what differs from the defaults of TrainingArguments."""
    if args.recipe == "stock":
        return {"disable_tqdm": False}  # its default, which would be another one where libraries log errors only
    given = {name: value for arguments in _plain(args).values() for name, value in arguments.items()}
    given["dataloader_persistent_workers"] = args.dataloader_workers > 0
    return given


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
    tuning: Mapping[str, str],
    timeout_s: int,
    wrapped: Callable[[], Any],
    loss: chunked_loss.ChunkedLoss | None = None,
) -> list[TrainerCallback]:
    """Return them for the trainer's list, after observed_strategy.FirstStep: it has to have let go of the blocks."""
    return [
        *([KeepGradients(wrapped)] if on(tuning, BUCKETS) else []),
        *([CompileBlocks(timeout_s, loss)] if on(tuning, COMPILE) else []),
    ]
