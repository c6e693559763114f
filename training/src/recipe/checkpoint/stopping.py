"""End early, together, with a checkpoint: when a file appears. A batch script makes it when Slurm warns it.

All ranks have to agree on the step: otherwise one saves while another trains on. Rank 0 looks for the file. Its flag is
sent in a small all_reduce, which begins at the end of a step and is read at the end of the next, so that no step waits
for it. When there is nothing to look for, nothing is sent.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback

from recipe import group
from recipe.trajectory import Sent

LOOK_EVERY_S = 0.5


class StopOnRequest(TrainerCallback):
    """`step`: after which it stopped; None while it goes on."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.step: int | None = None
        self._asked = False
        self._looked_s = 0.0
        # of one rank on the host: no collective orders it before its copy
        self._flag = torch.zeros(1, dtype=torch.int32, device=group.DEVICE if dist.is_initialized() else "cpu")
        self._work: Any = None  # the all_reduce of the step before; on a GPU _sent is the copy after it
        self._sent: Sent | None = None
        # the flag is copied beside the compute stream: there it would wait for every kernel that is queued
        self._side = torch.cuda.Stream() if group.CUDA else None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.file is None or self.step is not None:
            return
        if self._work is not None and not group.CUDA:
            self._work.wait()
        if (self._flag if self._sent is None else self._sent.wait().values)[0].item():  # at the end of the step before
            self.step = state.global_step
            control.should_save = control.should_training_stop = True
            return
        if group.RANK == 0 and not self._asked and time.monotonic() - self._looked_s >= LOOK_EVERY_S:
            self._looked_s, self._asked = time.monotonic(), self.file.exists()
        self._flag.fill_(int(self._asked))
        if dist.is_initialized():
            self._work = dist.all_reduce(self._flag, op=dist.ReduceOp.MAX, async_op=True)
        if group.CUDA:
            with torch.cuda.stream(self._side):
                if self._work is not None:
                    self._work.wait()
                self._sent = Sent(self._flag)
