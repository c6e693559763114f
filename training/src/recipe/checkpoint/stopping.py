"""End early, together, with a checkpoint: when a file appears, or when the time limit is near.

A batch script makes the file when Slurm warns it, two minutes before the time limit. A large checkpoint takes longer
than that. So rank 0 knows when the job ends (--ends-at), and how long the last checkpoint took.

Rank 0 looks for both. All ranks have to agree on the step: otherwise one saves while another trains on. The flag is
sent in a small all_reduce, which begins at the end of a step and is read at the end of the next, so that no step waits
for it. When there is nothing to look for, nothing is sent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback

from recipe import group
from recipe.rank import say
from recipe.watch.finite import Sent

LOOK_EVERY_S = 0.5
LEAST_S = 120.0  # what the batch scripts ask of Slurm: --signal=B:USR1@120
FACTOR = 2  # until all ranks agree two steps end, and other jobs may write at the same time


class StopOnRequest(TrainerCallback):
    """`step`: after which it stopped; None while it goes on.

    ends_at: unix seconds, None where the end of the job is not known; save_s: what the last save took, 0 before one.
    """

    def __init__(self, file: Path | None, ends_at: int | None, save_s: Callable[[], float]) -> None:
        self.file, self.ends_at, self.save_s = file, ends_at, save_s
        self.left_s = math.inf if ends_at is None else ends_at - time.time()
        self.step: int | None = None
        self._asked = False
        self._looked_s = 0.0
        # of one rank on the host: no collective orders it before its copy
        self._flag = torch.zeros(1, dtype=torch.int32, device=group.DEVICE if dist.is_initialized() else "cpu")
        self._work: Any = None  # the all_reduce of the step before; on a GPU _sent is the copy after it
        self._sent: Sent | None = None
        # the flag is copied beside the compute stream: there it would wait for every kernel that is queued
        self._side = torch.cuda.Stream() if group.CUDA else None

    @property
    def lead_s(self) -> float:
        """Return how many seconds before the time limit the training stops. At most half of what was left at the start:
        a job that stops at once, and is requeued, trains nothing."""
        return min(max(LEAST_S, FACTOR * self.save_s()), self.left_s / 2)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if (self.file is None and self.ends_at is None) or self.step is not None:
            return
        if self._work is not None and not group.CUDA:
            self._work.wait()
        if (self._flag if self._sent is None else self._sent.wait().values)[0].item():  # at the end of the step before
            self.step = state.global_step
            control.should_save = control.should_training_stop = True
            return
        self._flag.fill_(int(group.RANK == 0 and self._look()))
        if dist.is_initialized():
            self._work = dist.all_reduce(self._flag, op=dist.ReduceOp.MAX, async_op=True)
        if group.CUDA:
            with torch.cuda.stream(self._side):
                if self._work is not None:
                    self._work.wait()
                self._sent = Sent(self._flag)

    def _look(self) -> bool:
        now = time.monotonic()
        if not self._asked and now - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now
            self._asked = (self.file is not None and self.file.exists()) or self._time_is_up()
        return self._asked

    def _time_is_up(self) -> bool:
        if self.ends_at is None or time.time() < self.ends_at - self.lead_s:
            return False
        say(f"the time limit is near: {self.lead_s:.0f} s are left for the last checkpoint")
        if self.file is not None:
            self.file.touch()  # the batch script requeues a job that was stopped
        return True
