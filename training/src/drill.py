"""Faults that a rank inflicts on itself when BRINGUP_DRILL asks for one, so that a gate can be seen to fail.

BRINGUP_DRILL=no-fsdp                  FSDP is not handed to the Trainer: an FSDP entrypoint has to refuse
BRINGUP_DRILL=no-checkpointing         --activation-checkpointing is not handed to the Trainer
BRINGUP_DRILL=wide-shards              HSDP whose shard groups span two hosts
BRINGUP_DRILL=unsharded-optimizer      the optimizer of every rank keeps whole copies of parameters that are sharded
BRINGUP_DRILL=sum-gradients            gradients are summed over the ranks, not averaged, as torch 2.7 and 2.8 did on gloo
BRINGUP_DRILL=same-rows:R              rank R reads the rows of rank 0 (of rank 1, if it is rank 0)
BRINGUP_DRILL=flip-gradient:R@STEP     an exponent bit flips in what rank R holds of the last gradient, after the reduction
BRINGUP_DRILL=kill-rank:R@STEP         rank R kills itself with SIGKILL after STEP optimizer steps
BRINGUP_DRILL=hang-rank:R@STEP         rank R stops taking part
BRINGUP_DRILL=raise-rank:R@STEP        rank R raises an exception
BRINGUP_DRILL=kill-in-save:R@STEP      rank R kills itself with SIGKILL in the middle of writing the checkpoint of STEP
BRINGUP_DRILL=cut-checkpoint:R@STEP    rank R cuts its file of the checkpoint of STEP in half when it is complete
BRINGUP_DRILL=flip-checkpoint:R@STEP   rank R turns over one byte of that file

Unset, this module does nothing. It never touches another process.
"""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import dataclass

VARIABLE = "BRINGUP_DRILL"
PLAIN = ("no-fsdp", "no-checkpointing", "wide-shards", "unsharded-optimizer", "sum-gradients")
OF_A_RANK = ("same-rows",)
AT_A_STEP = ("flip-gradient", "kill-rank", "hang-rank", "raise-rank", "kill-in-save", "cut-checkpoint", "flip-checkpoint")
FLIPPED_BIT = 256.0  # bit 3 of an exponent, flipped from 0 to 1, multiplies by 2**8


@dataclass(frozen=True)
class Drill:
    """kind: none, or one of the names above."""

    kind: str = "none"
    rank: int = 0
    step: int = 0

    def is_on(self, kind: str) -> bool:
        return self.kind == kind

    def rows_of(self, rank: int) -> int:
        """The rank whose rows this rank reads."""
        return (1 if rank == 0 else 0) if self.kind == "same-rows" and rank == self.rank else rank

    def gradient_factor(self, rank: int, step: int, world: int, *, last: bool) -> float:
        """By what this rank's part of a reduced gradient of `step` (1, 2, ...) is multiplied. last: of the last parameter."""
        if self.kind == "sum-gradients":
            return float(world)
        return FLIPPED_BIT if self.kind == "flip-gradient" and last and (rank, step) == (self.rank, self.step) else 1.0

    def after_step(self, rank: int, step: int) -> None:
        """Called on every rank after each optimizer step (1, 2, ...)."""
        if (rank, step) != (self.rank, self.step):
            return
        if self.kind == "kill-rank":
            os.kill(os.getpid(), signal.SIGKILL)
        elif self.kind == "hang-rank":
            while True:
                time.sleep(60)
        elif self.kind == "raise-rank":
            raise RuntimeError(f"injected by {VARIABLE} on rank {rank} after step {step}")


def from_environment(world: int, steps: int) -> Drill:
    """The drill asked for. ValueError (one line) when it is not one, or could never fire."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return Drill()
    match = re.fullmatch(r"([a-z-]+)(?::(\d+))?(?:@(\d+))?", text)
    shape = (match[2] is not None, match[3] is not None) if match else None
    shapes = dict.fromkeys(PLAIN, (False, False)) | dict.fromkeys(OF_A_RANK, (True, False)) | dict.fromkeys(AT_A_STEP, (True, True))
    if match is None or shapes.get(match[1]) != shape:
        known = [*PLAIN, *(f"{kind}:R" for kind in OF_A_RANK), *(f"{kind}:R@STEP" for kind in AT_A_STEP)]
        raise ValueError(f"{VARIABLE}={text}: expected {', '.join(known)}")
    drill = Drill(match[1], int(match[2] or 0), int(match[3] or 0))
    if (match[2] and drill.rank >= world) or (match[3] and not 1 <= drill.step <= steps) or (match[1] == "same-rows" and world < 2):
        raise ValueError(f"{VARIABLE}={text}: can never fire with {world} rank(s) and {steps} step(s)")
    return drill
