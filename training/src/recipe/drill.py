"""Faults that a rank inflicts on itself when BRINGUP_DRILL asks for one, so that a gate can be seen to fail.

BRINGUP_DRILL=no-fsdp                  FSDP is not handed to the Trainer: an FSDP entrypoint has to refuse
BRINGUP_DRILL=no-checkpointing         --activation-checkpointing is not handed to the Trainer
BRINGUP_DRILL=unsharded-optimizer      the optimizer of every rank keeps whole copies of parameters that are sharded
BRINGUP_DRILL=sum-gradients            gradients are summed over the ranks and not averaged (torch 2.7 and 2.8 on gloo)
BRINGUP_DRILL=same-rows:R              rank R reads the rows of rank 0 (of rank 1, if it is rank 0)
BRINGUP_DRILL=flip-gradient:R@STEP     after the reduction, an exponent bit flips in rank R's part of the last gradient
BRINGUP_DRILL=kill-rank:R@STEP         rank R kills itself with SIGKILL after STEP optimizer steps
BRINGUP_DRILL=hang-rank:R@STEP         rank R stops taking part
BRINGUP_DRILL=stop-rank:R@STEP         rank R is stopped for 20 s after STEP optimizer steps (SIGSTOP, SIGCONT)
BRINGUP_DRILL=raise-rank:R@STEP        rank R raises an exception
BRINGUP_DRILL=slow-rank:R              rank R pauses in the forward pass, as a slow device does
BRINGUP_DRILL=nan-rank:R@STEP          the loss of rank R is NaN in STEP
BRINGUP_DRILL=oom-rank:R@STEP          rank R takes host memory until it is stopped, at most 1.1 x its job's limit
BRINGUP_DRILL=device-oom:R@STEP        rank R raises what torch raises when the device memory is full
BRINGUP_DRILL=separate-groups          the ranks of each node form a group of their own, as a wrong launcher makes them
BRINGUP_DRILL=kill-at:R@MOMENT         rank R kills itself with SIGKILL when it comes to MOMENT, one of those below
BRINGUP_DRILL=hold-at:R@MOMENT         rank R writes RUN_DIR/moment there and stays; the drill does the rest
BRINGUP_DRILL=kill-in-save:R@STEP      rank R kills itself with SIGKILL in the middle of writing the checkpoint of STEP
BRINGUP_DRILL=cut-checkpoint:R@STEP    rank R cuts its file of the checkpoint of STEP in half when it is complete
BRINGUP_DRILL=flip-checkpoint:R@STEP   rank R inverts one byte of that file
BRINGUP_DRILL=forget-tensor:R@STEP     rank R loses a tensor of its optimizer when the checkpoint of STEP was read back

MOMENT: launch (the program has begun), rendezvous (before it joins the process group), collective (before the first
one), step (in the middle of step 4), save (while its first checkpoint is written), end (after the last step).

Unset, this module does nothing. It never touches another process.
"""

from __future__ import annotations

import math
import os
import re
import signal
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VARIABLE = "BRINGUP_DRILL"
PLAIN = ("no-fsdp", "no-checkpointing", "unsharded-optimizer", "sum-gradients", "separate-groups")
OF_A_RANK = ("same-rows", "slow-rank")
AT_A_MOMENT = ("kill-at", "hold-at")
MOMENTS = ("launch", "rendezvous", "collective", "step", "save", "end")
STEP_OF_MOMENT = 4
AT_A_STEP = (
    "flip-gradient",
    "kill-rank",
    "hang-rank",
    "stop-rank",
    "raise-rank",
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


@dataclass(frozen=True)
class Drill:
    """kind: none, or one of the names above."""

    kind: str = "none"
    rank: int = 0
    step: int = 0
    moment: str = ""
    run_dir: Path = Path()

    def is_on(self, kind: str) -> bool:
        return self.kind == kind

    def rows_of(self, rank: int) -> int:
        """The rank whose rows this rank reads."""
        return (1 if rank == 0 else 0) if self.kind == "same-rows" and rank == self.rank else rank

    def gradient_factor(self, rank: int, step: int, world: int, *, last: bool) -> float:
        """The factor on this rank's part of a reduced gradient of `step` (1, 2, ...). last: of the last parameter."""
        if self.kind == "sum-gradients":
            return float(world)
        return FLIPPED_BIT if self.kind == "flip-gradient" and last and (rank, step) == (self.rank, self.step) else 1.0

    def at(self, moment: str, rank: int, step: int = STEP_OF_MOMENT) -> None:
        """Called on every rank at each of MOMENTS."""
        if (moment, rank, step) != (self.moment, self.rank, STEP_OF_MOMENT):
            return
        if self.kind == "kill-at":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "hold-at":
            (self.run_dir / "moment").write_text(f"{moment}\n")
            while True:
                time.sleep(60)

    def during_save(self, rank: int, step: int) -> None:
        """Called on every rank when its tensors of the checkpoint of `step` are written, and nothing else is."""
        self.at("save", rank)
        if self.kind == "kill-in-save" and (rank, step) == (self.rank, self.step):
            os.kill(os.getpid(), signal.SIGKILL)

    def after_save(self, rank: int, step: int, files: list[Path]) -> None:
        """Called on every rank when the checkpoint of `step` is complete. files: those of this rank."""
        if (rank, step) != (self.rank, self.step) or self.kind not in ("cut-checkpoint", "flip-checkpoint"):
            return
        whole = files[0].read_bytes()
        half = len(whole) // 2
        rest = b"" if self.kind == "cut-checkpoint" else bytes([whole[half] ^ 0xFF]) + whole[half + 1 :]
        files[0].write_bytes(whole[:half] + rest)

    def after_read(self, rank: int, step: int, tensors: dict[str, Any]) -> None:
        """Called on every rank when the checkpoint of `step` was read. tensors: by name, as the trainer holds them."""
        if self.kind == "forget-tensor" and (rank, step) == (self.rank, self.step):
            lost = next(tensor for name, tensor in tensors.items() if name.endswith(".exp_avg"))
            getattr(lost, "to_local", lambda: lost)().zero_()

    def loss_factor(self, rank: int, step: int) -> float:
        """By what this rank's loss of `step` (1, 2, ...) is multiplied."""
        return math.nan if self.kind == "nan-rank" and (rank, step) == (self.rank, self.step) else 1.0

    def inside_block(self, rank: int) -> None:
        """Called at the start of the forward pass of each timed block."""
        if self.kind == "slow-rank" and rank == self.rank:
            time.sleep(PAUSE_S)

    def after_step(self, rank: int, step: int) -> None:
        """Called on every rank after each optimizer step (1, 2, ...)."""
        if (rank, step) != (self.rank, self.step):
            return
        if self.kind == "kill-rank":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "hang-rank":
            while True:
                time.sleep(60)
        elif self.kind == "stop-rank":
            import faults  # here: its folder is known when rank.py was imported

            faults.stop_here()
        elif self.kind == "raise-rank":
            raise RuntimeError(f"injected by {VARIABLE} on rank {rank} after step {step}")
        elif self.kind == "oom-rank":
            take_all_memory()
        elif self.kind == "device-oom":
            import torch  # here: the request is known before torch is imported

            raise torch.OutOfMemoryError(f"CUDA out of memory. Injected by {VARIABLE} on rank {rank} after step {step}")


def take_all_memory() -> None:
    """Touch memory in pieces, up to 1.1 x the limit of this process's cgroup. RuntimeError when nothing stopped it."""
    limit = memory_limit()
    if limit is None:
        raise RuntimeError(
            f"{VARIABLE}=oom-rank: no cgroup limits the memory of this process, so nothing would stop it"
        )
    hoard = [b"x" * (16 * MIB) for _ in range(int(1.1 * limit) // (16 * MIB))]
    raise RuntimeError(f"took {len(hoard) * 16} MiB, {limit // MIB} MiB are the limit, and nothing stopped it")


def memory_limit() -> int | None:
    """Bytes, of the innermost cgroup of this process that has a limit (v1 or v2); None without one."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        v1 = controllers == "memory"
        root, file = ("/sys/fs/cgroup/memory", "memory.limit_in_bytes") if v1 else ("/sys/fs/cgroup", "memory.max")
        if controllers not in ("memory", ""):
            continue
        parts = Path(path.lstrip("/")).parts
        # in a container the mount begins somewhere below the path's first part
        visible = next(
            (Path(root, *parts[cut:]) for cut in range(len(parts)) if Path(root, *parts[cut:]).is_dir()), Path(root)
        )
        for folder in (visible, *visible.parents):
            text = (folder / file).read_text().strip() if (folder / file).is_file() else "max"
            if text.isdigit() and int(text) < 2**60:  # v1 writes a number near 2**63 for none
                return int(text)
    return None


def from_environment(world: int, steps: int, run_dir: Path) -> Drill:
    """The requested drill. ValueError (one line) when it is not one, or could never fire."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return Drill()
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
    drill = Drill(match[1], int(match[2] or 0), int(match[3] or 0), match[4] or "", run_dir)
    if match[4] and drill.moment not in MOMENTS:
        raise ValueError(f"{VARIABLE}={text}: there is no such moment; expected {', '.join(MOMENTS)}")
    if (
        (match[2] and drill.rank >= world)
        or (match[3] and not 1 <= drill.step <= steps)
        or (match[1] == "same-rows" and world < 2)
        or (drill.moment == "step" and steps < STEP_OF_MOMENT)
    ):
        raise ValueError(f"{VARIABLE}={text}: can never fire with {world} rank(s) and {steps} step(s)")
    return drill
