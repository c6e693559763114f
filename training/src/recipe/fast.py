"""The recipes: stock, plain and fast. What each turns on, and why.

stock: Trainer with its own defaults. Only the workload (model, data, batch, precision, strategy, schedule) is given.
plain: without the waits for the device that Trainer and the model put into every step.
fast:  plain, and what makes one GPU faster without changing what is learnt: the same numbers, computed otherwise.

So losses agree within the tolerance of the data type. `recipe` is recorded with every change against stock (`tuning`),
and compare refuses to mix recipes.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
import shutil
import stat
import sys
import sysconfig
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from bringup.records import Tuning
from transformers import TrainerCallback

from recipe import group, no_device_waits
from recipe.arguments import FAST_WARMUP, SLOW, Args
from recipe.observed_strategy import decoder_layers

WORKERS = 4
COLLECT_EVERY = 1000  # steps
NO_LOGGING = "no logging by Trainer"
NO_COUNT = "no count of the tokens of all ranks"
COMPILE, LIGER, QUIET_GC = "compile per block", "liger kernels", "garbage collection on schedule"


# What plain changes against stock: Trainer's arguments, and why. The patches of no_device_waits.py belong to it too.
PLAIN: tuple[tuple[str, dict[str, Any], str], ...] = (
    (
        "copies without waiting",
        {"accelerator_config": {"non_blocking": True}},
        "the default waits for the device in every batch, and the time would count as fetching",
    ),
    (NO_LOGGING, {"logging_strategy": "no"}, "it reads the loss from the device; recorded elsewhere"),
    (
        "no NaN filter",
        {"logging_nan_inf_filter": False},
        "it reads every loss from the device, and puts a mean in the place of a NaN",
    ),
    ("no progress bar", {"disable_tqdm": True}, "the progress is in raw/progress.jsonl and on the screen"),
    (
        "no search for unused parameters",
        {"ddp_find_unused_parameters": False},
        "under DDP the default walks the graph in every step",
    ),
    (
        "no broadcast of buffers",
        {"ddp_broadcast_buffers": False},
        "under DDP the default sends rank 0's before each step, and they are constants; all ranks wait for it",
    ),
    (
        NO_COUNT,
        {"average_tokens_across_devices": False},
        "the count is a collective for which all ranks wait before each step; packed rows have equally many on each",
    ),
)
NO_LOOK = "no look at position ids"


def choose(args: Args) -> tuple[Args, list[Tuning]]:
    """(the arguments as they will be used, what was chosen against stock and why)."""
    if args.recipe == "stock":
        return args, []
    plain = [*(Tuning(what=what, on=True, why=why) for what, _, why in _plain(args)), _no_look()]
    if args.recipe == "plain":
        return args, plain
    # of the node, as Inductor's is by default: ~/.triton, where Liger's kernels would go, is one folder for all ranks
    if (folder := _own_folder(f"triton-{os.getuid()}")) is not None:
        os.environ.setdefault("TRITON_CACHE_DIR", str(folder))
    attention, why_attention = _attention(args)
    workers = max(args.dataloader_workers, WORKERS) if group.CUDA else args.dataloader_workers
    compiled = _compile()
    tuning = [
        *plain,
        compiled,
        _liger(args, compiled.on),
        Tuning(what=f"attention {attention}", on=attention != "sdpa", why=why_attention),
        Tuning(
            what=f"{workers} data-loader workers",
            on=workers > 0,
            why="rows are collated beside the training thread"
            if workers
            else "without a GPU they would take its cores",
        ),
        Tuning(
            what=QUIET_GC,
            on=True,
            why="a collection of the heap stops a rank in some step, and with it all others; "
            f"now every {COLLECT_EVERY} steps",
        ),
    ]
    return replace(args, attention=attention, dataloader_workers=workers), tuning


def _plain(args: Args) -> list[tuple[str, dict[str, Any], str]]:
    """The changes of PLAIN that go with --report-to, which needs Trainer's logging, and with rows that have padding."""
    kept = {NO_LOGGING: bool(args.report_to), NO_COUNT: not args.packing}
    return [change for change in PLAIN if not kept.get(change[0], False)]


def _no_look() -> Tuning:
    lacking = no_device_waits.lacking()
    if lacking:
        return Tuning(what=NO_LOOK, on=False, why=f"its wait stays: {', '.join(lacking)} is not in this version")
    why = "in every forward pass transformers asks the device whether a row holds several sequences; here none does"
    return Tuning(what=NO_LOOK, on=True, why=why)


def _compile() -> Tuning:
    why = "fuses elementwise kernels; in the second step, once for all blocks: seconds, not minutes"
    lacking = _not_installed()
    if lacking is not None:
        return Tuning(what=COMPILE, on=False, why=lacking)
    if not group.CUDA and " " in sys.prefix:
        return Tuning(
            what=COMPILE, on=False, why="torch links its CPU kernels by a path, and breaks it at the space in this one"
        )
    return Tuning(what=COMPILE, on=True, why=why)


def _not_installed() -> str | None:
    """What this node lacks for compiling: a compiler or Python.h. A GPU needs them too, for the stubs of Triton."""
    if group.CUDA and importlib.util.find_spec("triton") is None:
        return "needs triton, which is not installed"
    compilers = ("gcc", "clang") if group.CUDA else ("g++",)
    if not os.environ.get("CC" if group.CUDA else "CXX") and not any(map(shutil.which, compilers)):
        return f"needs {' or '.join(compilers)}, and there is none on this node"
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        return f"needs {header}, and there is none on this node (package python3-dev or python3-devel)"
    return None


def _liger(args: Args, compiled: bool) -> Tuning:
    """Beside compiled blocks only its fused LM head and loss: the rest is what compile fuses already."""
    if not group.CUDA:
        return Tuning(what=LIGER, on=False, why="they are Triton kernels: they need a GPU")
    if importlib.util.find_spec("liger_kernel") is None:
        return Tuning(what=LIGER, on=False, why="liger_kernel is not installed (pip install liger-kernel)")
    from liger_kernel.transformers.monkey_patch import MODEL_TYPE_TO_APPLY_LIGER_FN

    model_type = _model_type(args)
    if model_type not in MODEL_TYPE_TO_APPLY_LIGER_FN:
        return Tuning(what=LIGER, on=False, why=f"the installed version has none for model type {model_type}")
    part = "LM head and loss in one, so that the logits are never stored whole"
    return Tuning(what=LIGER, on=True, why=part if compiled else f"{part}; RMSNorm, RoPE and SwiGLU fused")


def _model_type(args: Args) -> str:
    if args.model_config is not None:
        return str(json.loads(args.model_config.read_text())["model_type"])
    from transformers import AutoConfig

    return str(AutoConfig.from_pretrained(args.model).model_type)


def _attention(args: Args) -> tuple[str, str]:
    """(implementation, why). A requested one stays."""
    if args.attention != "sdpa":
        return args.attention, "requested"
    if not group.CUDA:
        return "sdpa", "the others need a GPU"
    hopper = torch.cuda.get_device_capability(group.DEVICE) == (9, 0)
    if hopper and importlib.util.find_spec("flash_attn_interface") is not None:
        return "flash_attention_3", "75 % of the peak on Hopper, FlashAttention-2 35 % (arXiv 2407.08608)"
    if importlib.util.find_spec("flash_attn") is not None:
        return "flash_attention_2", "flash_attn is installed" + (", its version 3 for Hopper is not" if hopper else "")
    return "sdpa", "no flash_attn is installed; without a mask sdpa takes torch's own flash kernel"


def on(tuning: list[Tuning], what: str) -> bool:
    return any(part.what == what and part.on for part in tuning)


def _own_folder(name: str) -> Path | None:
    """A folder of this user in the node's temporary one; None: another user's has this name. Code is loaded from it."""
    folder = Path(tempfile.gettempdir(), name)
    try:
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError:
        return None
    return folder if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() else None


def trainer_arguments(args: Args, tuning: list[Tuning]) -> dict[str, Any]:
    """For TrainingArguments: what differs from its defaults."""
    if args.recipe == "stock":
        return {"disable_tqdm": False}  # its default, which would be another one where libraries log errors only
    given = {name: value for _, arguments, _ in _plain(args) for name, value in arguments.items()}
    given["dataloader_persistent_workers"] = args.dataloader_workers > 0
    if on(tuning, LIGER):
        given["use_liger_kernel"] = True
        if on(tuning, COMPILE):
            given["liger_kernel_config"] = {
                "fused_linear_cross_entropy": True,
                "cross_entropy": False,
                "rms_norm": False,
                "rope": False,
                "swiglu": False,
            }
    return given


class CompileBlocks(TrainerCallback):
    """Compiles when the first step is over, in place, so that parameters keep their names.

    During the first step every block has a hook of its own (observed_strategy.FirstStep). Dynamo would compile each
    block anew, up to its limit of eight, and then leave all of them uncompiled for good.
    """

    def __init__(self, timeout_s: int) -> None:
        self.timeout_s = timeout_s
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


class QuietGc(TrainerCallback):
    """Python's garbage collection when it is convenient, on all ranks in the same step."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        gc.collect()
        gc.freeze()
        gc.disable()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step % COLLECT_EVERY == 0:
            gc.collect(1)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        gc.enable()


def callbacks(tuning: list[Tuning], timeout_s: int) -> list[TrainerCallback]:
    """After observed_strategy.FirstStep in the trainer's list: it has to have let go of the blocks."""
    return [
        *([CompileBlocks(timeout_s)] if on(tuning, COMPILE) else []),
        *([QuietGc()] if on(tuning, QUIET_GC) else []),
    ]
