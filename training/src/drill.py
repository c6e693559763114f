"""Faults that a rank inflicts on itself when BRINGUP_DRILL asks for one, so that a gate can be seen to fail.

BRINGUP_DRILL=no-fsdp             FSDP is not handed to the Trainer: an FSDP entrypoint has to refuse
BRINGUP_DRILL=kill-rank:R@STEP    rank R kills itself with SIGKILL after STEP optimizer steps
BRINGUP_DRILL=hang-rank:R@STEP    rank R stops taking part
BRINGUP_DRILL=raise-rank:R@STEP   rank R raises an exception

Unset, this module does nothing. It never touches another process.
"""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import dataclass

VARIABLE = "BRINGUP_DRILL"


@dataclass(frozen=True)
class Drill:
    """kind: none, no-fsdp, kill-rank, hang-rank, raise-rank."""

    kind: str = "none"
    rank: int = 0
    step: int = 0

    @property
    def without_fsdp(self) -> bool:
        return self.kind == "no-fsdp"

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
    if text == "no-fsdp":
        return Drill("no-fsdp")
    match = re.fullmatch(r"(kill-rank|hang-rank|raise-rank):(\d+)@(\d+)", text)
    if match is None:
        raise ValueError(f"{VARIABLE}={text}: expected no-fsdp or kill-rank:R@STEP, hang-rank:R@STEP, raise-rank:R@STEP")
    drill = Drill(match[1], int(match[2]), int(match[3]))
    if drill.rank >= world or not 1 <= drill.step <= steps:
        raise ValueError(f"{VARIABLE}={text}: can never fire with {world} rank(s) and {steps} step(s)")
    return drill
