"""Faults that BRINGUP_DRILL injects into the ranks of a training, so that a gate can be seen to fail.

BRINGUP_DRILL=no-fsdp                  Trainer is not told of FSDP: an FSDP entrypoint has to refuse
BRINGUP_DRILL=no-checkpointing         Trainer is not told of --activation-checkpointing
BRINGUP_DRILL=unsharded-optimizer      the optimizer of every rank keeps whole copies of parameters that are sharded
BRINGUP_DRILL=sum-gradients            gradients are summed over the ranks and not averaged (torch 2.7 and 2.8 on gloo)
BRINGUP_DRILL=same-rows:R              rank R reads the rows of rank 0 (of rank 1, if it is rank 0)
BRINGUP_DRILL=flip-gradient:R@STEP     after the reduction, an exponent bit flips in rank R's part of the last gradient
BRINGUP_DRILL=kill-rank:R@STEP         rank R kills itself with SIGKILL after STEP optimizer steps
BRINGUP_DRILL=hang-rank:R@STEP         rank R stops taking part
BRINGUP_DRILL=stop-rank:R@STEP         rank R is stopped for 20 s after STEP optimizer steps (SIGSTOP, SIGCONT)
BRINGUP_DRILL=slow-rank:R              rank R pauses in the forward pass: BRINGUP_DRILL_SIZE (0.3) s
BRINGUP_DRILL=nan-rank:R@STEP          the loss of rank R is NaN in STEP
BRINGUP_DRILL=oom-rank:R@STEP          rank R takes host memory until it is stopped, at most 1.1 x its job's limit
BRINGUP_DRILL=device-oom:R@STEP        rank R raises what torch raises when the device memory is full
BRINGUP_DRILL=separate-groups          the ranks of each node form a group of their own, as a wrong launcher makes them
BRINGUP_DRILL=kill-at:R@MOMENT         rank R kills itself with SIGKILL when it comes to MOMENT, one of those below
BRINGUP_DRILL=hold-at:R@MOMENT         rank R writes RUN_DIR/moment there and stays; the drill does the rest
BRINGUP_DRILL=wait-at:R@MOMENT         rank R writes RUN_DIR/moment there and goes on after 5 s; the drill does the rest
BRINGUP_DRILL=kill-in-save:R@STEP      rank R kills itself with SIGKILL in the middle of writing the checkpoint of STEP
BRINGUP_DRILL=cut-checkpoint:R@STEP    rank R cuts a third off its file of the checkpoint of STEP when it is complete
BRINGUP_DRILL=flip-checkpoint:R@STEP   rank R inverts one bit of that file
BRINGUP_DRILL=forget-moments           what is saved and read back has no second moments
BRINGUP_DRILL=forget-tensor:R@STEP     rank R loses a tensor of its optimizer when the checkpoint of STEP was read back

MOMENT: launch (the program has begun), rendezvous (before it joins the process group), collective (before the first
one), step (in the middle of step 4), save (while its first checkpoint is written), end (after the last step).

sitecustomize.py calls inject() for each module of the training package, when it was imported. A name that is changed
here and no longer exists there ends the program with AttributeError. No other process is touched.
"""

from __future__ import annotations

import functools
import math
import os
import re
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "BRINGUP_DRILL"
PLAIN = ("no-fsdp", "no-checkpointing", "unsharded-optimizer", "sum-gradients", "separate-groups", "forget-moments")
OF_A_RANK = ("same-rows", "slow-rank")
AT_A_MOMENT = ("kill-at", "hold-at", "wait-at")
WAIT_S = 5  # a drill looks for the file ten times a second, and makes its fault in one
MOMENTS = ("launch", "rendezvous", "collective", "step", "save", "end")
STEP_OF_MOMENT = 4
AT_A_STEP = (
    "flip-gradient",
    "kill-rank",
    "hang-rank",
    "stop-rank",
    "nan-rank",
    "oom-rank",
    "device-oom",
    "kill-in-save",
    "cut-checkpoint",
    "flip-checkpoint",
    "forget-tensor",
)
MIB = 2**20
PAUSE_S = 0.3
FLIPPED_BIT = 256.0  # bit 3 of an exponent, flipped from 0 to 1, multiplies by 2**8
RANK = int(os.environ.get("RANK", "0"))
WORLD = int(os.environ.get("WORLD_SIZE", "1"))


@dataclass(frozen=True)
class Fault:
    """kind: one of the names above."""

    kind: str
    rank: int = 0
    step: int = 0
    moment: str = ""
    run_dir: Path = Path()

    def hits(self, kind: str, step: int | None = None) -> bool:
        """Whether this rank has to make this fault now. step: 1, 2, ... for a fault of AT_A_STEP."""
        return (self.kind, self.rank) == (kind, RANK) and step in (None, self.step)

    def at(self, moment: str, step: int = STEP_OF_MOMENT) -> None:
        """Called by every rank at each of MOMENTS."""
        if (moment, RANK, step) != (self.moment, self.rank, STEP_OF_MOMENT):
            return
        if self.kind in ("hold-at", "wait-at"):
            (self.run_dir / "moment").write_text(f"{moment}\n")
            time.sleep(WAIT_S)
            while self.kind == "hold-at":
                time.sleep(60)
            return
        kill_myself()


requested = Fault("none")  # until the arguments of the program are known


def kill_myself() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def after_step(step: int) -> None:
    """Called by every rank after each optimizer step (1, 2, ...)."""
    if requested.hits("kill-rank", step):
        kill_myself()
    elif requested.hits("hang-rank", step):
        while True:
            time.sleep(60)
    elif requested.hits("stop-rank", step):
        import faults  # of the probes

        faults.stop_here()
    elif requested.hits("oom-rank", step):
        take_all_memory()
    elif requested.hits("device-oom", step):
        import torch  # here: the arguments are read before torch is imported

        raise torch.OutOfMemoryError(f"CUDA out of memory. Injected by {VARIABLE} on rank {RANK} after step {step}")


def take_all_memory() -> None:
    """Touch memory in pieces, up to 1.1 x the limit of this process's cgroup. RuntimeError when nothing stopped it."""
    import memory_limits  # here: the programs make the probes importable

    limits = memory_limits.of_cgroups()
    if not limits:
        raise RuntimeError(
            f"{VARIABLE}=oom-rank: no cgroup limits the memory of this process, so nothing would stop it"
        )
    limit = limits[0].bytes
    hoard = [b"x" * (16 * MIB) for _ in range(int(1.1 * limit) // (16 * MIB))]
    raise RuntimeError(f"took {len(hoard) * 16} MiB, {limit // MIB} MiB are the limit, and nothing stopped it")


def damage_file(path: Path) -> None:
    """Cut a third off, or invert one bit, as requested."""
    content = path.read_bytes()
    at = 2 * len(content) // 3  # of the tiny model's shards: inside a tensor
    rest = b"" if requested.kind == "cut-checkpoint" else bytes([content[at] ^ 1]) + content[at + 1 :]
    path.write_bytes(content[:at] + rest)


def from_environment(steps: int, run_dir: Path) -> Fault:
    """The requested fault. ValueError (one line) when it is not one, or could never fire."""
    text = os.environ[VARIABLE]
    match = re.fullmatch(r"([a-z-]+)(?::(\d+))?(?:@(?:(\d+)|([a-z]+)))?", text)
    shape = tuple(part is not None for part in match.groups()[1:]) if match else None
    shapes = (
        dict.fromkeys(PLAIN, (False, False, False))
        | dict.fromkeys(OF_A_RANK, (True, False, False))
        | dict.fromkeys(AT_A_STEP, (True, True, False))
        | dict.fromkeys(AT_A_MOMENT, (True, False, True))
    )
    if match is None or shapes.get(match[1]) != shape:
        known = [*PLAIN, *(f"{kind}:R" for kind in OF_A_RANK), *(f"{kind}:R@STEP" for kind in AT_A_STEP)]
        known += [f"{kind}:R@MOMENT" for kind in AT_A_MOMENT]
        raise ValueError(f"{VARIABLE}={text}: expected {', '.join(known)}")
    fault = Fault(match[1], int(match[2] or 0), int(match[3] or 0), match[4] or "", run_dir)
    if match[4] and fault.moment not in MOMENTS:
        raise ValueError(f"{VARIABLE}={text}: there is no such moment; expected {', '.join(MOMENTS)}")
    if (
        (match[2] and fault.rank >= WORLD)
        or (match[3] and not 1 <= fault.step <= steps)
        or (match[1] == "same-rows" and WORLD < 2)
        or (fault.moment == "step" and steps < STEP_OF_MOMENT)
    ):
        raise ValueError(f"{VARIABLE}={text}: can never fire with {WORLD} rank(s) and {steps} step(s)")
    return fault


# --- where the faults go: module of the training package -> what is changed in it

CHANGES: dict[str, Callable[[Any], None]] = {}


def inject(module: Any) -> None:
    """Called for every module of the training package, when it was executed."""
    if module.__name__ in CHANGES:
        CHANGES[module.__name__](module)


def changes(name: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    def keep(change: Callable[[Any], None]) -> Callable[[Any], None]:
        CHANGES[name] = change
        return change

    return keep


def around(owner: Any, name: str) -> Callable[[Callable[..., Any]], None]:
    """Replace owner.name by the decorated function, which is given the original before the arguments."""
    original = getattr(owner, name)

    def replace(function: Callable[..., Any]) -> None:
        @functools.wraps(original)
        def replaced(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        setattr(owner, name, replaced)

    return replace


@changes("recipe.arguments")
def _when_the_arguments_are_known(arguments: Any) -> None:
    @around(arguments, "parse")
    def parse(original: Any, *args: Any, **kwargs: Any) -> Any:
        global requested
        parsed = original(*args, **kwargs)
        try:
            requested = from_environment(parsed.steps, parsed.run_dir)
        except ValueError as error:
            arguments.complain(str(error))
        return parsed


@changes("recipe.rank")
def _as_the_program_begins(rank: Any) -> None:
    @around(rank, "open_facts")
    def open_facts(original: Any, *args: Any) -> Any:
        requested.at("launch")
        return original(*args)


@changes("recipe.group")
def _in_the_process_group(group: Any) -> None:
    @around(group, "start")
    def start(original: Any, *args: Any, **kwargs: Any) -> None:
        requested.at("rendezvous")
        join = group.dist.init_process_group
        if requested.kind == "separate-groups":
            group.dist.init_process_group = functools.partial(join_apart, group, join)
        try:
            original(*args, **kwargs)
        finally:
            group.dist.init_process_group = join

    @around(group, "count_members")
    def count_members(original: Any) -> int:
        requested.at("collective")
        return int(original())


def join_apart(group: Any, join: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """torch's init_process_group, as if each node were alone."""
    alone = {"rank": group.LOCAL_RANK, "world_size": group.LOCAL_WORLD, "device_id": None}
    store = group.dist.PrefixStore(f"drill-{group.RANK // group.LOCAL_WORLD}", kwargs["store"])
    join(*args, **kwargs | alone | {"store": store})


@changes("recipe.workload")
def _in_the_trainer(workload: Any) -> None:
    from torch.distributed.tensor import DTensor
    from transformers import TrainingArguments

    @around(TrainingArguments, "__init__")
    def make_arguments(original: Any, *args: Any, **kwargs: Any) -> None:
        if requested.kind == "no-fsdp":
            kwargs = {name: value for name, value in kwargs.items() if name not in FSDP}
        elif requested.kind == "no-checkpointing":
            kwargs = {name: without_recomputation(value) for name, value in kwargs.items() if name not in RECOMPUTATION}
        original(*args, **kwargs)

    @around(workload.RecipeTrainer, "get_train_dataloader")
    def get_train_dataloader(original: Any, self: Any) -> Any:
        loader = original(self)
        if requested.hits("same-rows"):
            loader.batch_sampler.process_index = 1 if RANK == 0 else 0
        return loader

    @around(workload.RecipeTrainer, "compute_loss")
    def compute_loss(original: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        loss = original(self, *args, **kwargs)
        step = self.state.global_step + 1
        requested.at("step", step)
        return loss * math.nan if requested.hits("nan-rank", step) else loss

    @around(workload.RecipeTrainer, "_clip_grad_norm")
    def _clip_grad_norm(original: Any, self: Any, model: Any) -> Any:
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        local = [gradient.to_local() if isinstance(gradient, DTensor) else gradient for gradient in gradients]
        if requested.kind == "sum-gradients":
            for gradient in local:
                gradient.mul_(WORLD)
        elif requested.hits("flip-gradient", self.state.global_step + 1):
            local[-1].mul_(FLIPPED_BIT)
        return original(self, model)


FSDP = ("fsdp", "fsdp_config", "parallelism_config")
RECOMPUTATION = ("activation_checkpointing", "gradient_checkpointing")


def without_recomputation(value: Any) -> Any:
    """fsdp_config has an option of its own for it."""
    if not isinstance(value, dict) or "activation_checkpointing" not in value:
        return value
    return value | {"activation_checkpointing": False}


@changes("recipe.meter")
def _in_the_steps(meter: Any) -> None:
    import torch

    @around(meter.Meter, "on_step_end")
    def on_step_end(original: Any, self: Any, args: Any, state: Any, *more: Any, **kwargs: Any) -> None:
        original(self, args, state, *more, **kwargs)
        after_step(state.global_step)

    @around(meter.Meter, "_before_block")
    @torch.compiler.disable  # a compiled block has its hooks inside
    def _before_block(original: Any, self: Any, *args: Any) -> None:
        original(self, *args)
        if requested.hits("slow-rank"):
            time.sleep(float(os.environ.get("BRINGUP_DRILL_SIZE") or PAUSE_S))


@changes("recipe.memory")
def _in_the_optimizer(memory: Any) -> None:
    from torch.distributed.tensor import DTensor

    @around(memory.ModelStates, "on_optimizer_step")
    def on_optimizer_step(original: Any, self: Any, *args: Any, optimizer: Any, **kwargs: Any) -> None:
        if requested.kind == "unsharded-optimizer" and not self.total:
            for parameter, values in getattr(optimizer, "optimizer", optimizer).state.items():
                sharded = isinstance(parameter, DTensor)
                values["whole"] = parameter.full_tensor() if sharded else parameter.detach().clone()
        original(self, *args, optimizer=optimizer, **kwargs)


@changes("recipe.checkpoint.state")
def _in_what_is_saved(state: Any) -> None:
    @around(state, "tensors_of")
    def tensors_of(original: Any, trainer: Any) -> Any:
        tensors = original(trainer)
        if requested.kind == "forget-moments":
            tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith(".exp_avg_sq")}
        return tensors


@changes("recipe.checkpoint.files")
def _in_checkpoints(files: Any) -> None:
    @around(files, "_write_tensors")
    def _write_tensors(original: Any, tensors: Any, part: Path, step: int) -> None:
        original(tensors, part, step)
        requested.at("save")
        if requested.hits("kill-in-save", step):
            kill_myself()

    @around(files, "save")
    def save(original: Any, *args: Any) -> Any:
        saved = original(*args)
        if any(requested.hits(kind, saved.record.step) for kind in ("cut-checkpoint", "flip-checkpoint")):
            names = [file.name for file in saved.record.files]
            damage_file(next(saved.folder / name for name in names if name.startswith(f"__{RANK}_")))
        return saved

    @around(files, "read")
    def read(original: Any, folder: Path, record: Any, trainer: Any) -> Any:
        state = original(folder, record, trainer)
        if requested.hits("forget-tensor", record.step):
            tensors = files.state.tensors_of(trainer)
            lost = next(tensor for name, tensor in tensors.items() if name.endswith(".exp_avg"))
            getattr(lost, "to_local", lambda: lost)().zero_()
        return state


@changes("recipe.checkpoint.resume")
def _when_training_is_over(resume: Any) -> None:
    @around(resume.Checkpoints, "train")
    def train(original: Any, self: Any, trainer: Any) -> None:
        original(self, trainer)
        requested.at("end")
