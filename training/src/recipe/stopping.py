"""End early, together, with a checkpoint. The signal is a file that a batch script makes shortly before the time limit.

Rank 0 looks for the file. All ranks have to agree on the step: otherwise one saves while another trains on. The flag is
sent in a small all_reduce, which begins at the end of a step and is read at the end of the next, so that no step waits
for it. When there is no file to look for, nothing is sent.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback

from recipe import group

LOOK_EVERY_S = 0.5


class StopOnRequest(TrainerCallback):
    """`step`: after which it stopped; None while nobody asked."""

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.step: int | None = None
        self._asked = False
        self._looked_s = 0.0
        self._flag = torch.zeros(1, dtype=torch.int32, device=group.DEVICE)
        self._work: Any = None
        if file is not None and group.CUDA:
            self._side = torch.cuda.Stream()
            self._host = torch.zeros(1, dtype=torch.int32, pin_memory=True)
            self._copied = torch.cuda.Event()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.file is None or self.step is not None:
            return
        if self._agreed():
            self.step = state.global_step
            control.should_save = control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self._work is not None:
            self._finish()

    def _agreed(self) -> bool:
        if not dist.is_initialized():
            return self._look()
        agreed = self._finish() if self._work is not None else False
        if not agreed:
            self._flag.fill_(int(group.RANK == 0 and self._look()))
            self._work = dist.all_reduce(self._flag, op=dist.ReduceOp.MAX, async_op=True)
            if (
                group.CUDA
            ):  # copied beside the compute stream: reading it there would wait for every kernel that is queued
                with torch.cuda.stream(self._side):
                    self._work.wait()
                    self._host.copy_(self._flag, non_blocking=True)
                    self._copied.record()
        return agreed

    def _finish(self) -> bool:
        """What all ranks said at the end of the step before."""
        if group.CUDA:
            self._copied.synchronize()
            said = bool(self._host.item())
        else:
            self._work.wait()
            said = bool(self._flag.item())
        self._work = None
        return said

    def _look(self) -> bool:
        now = time.monotonic()
        if not self._asked and self.file is not None and now - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now
            self._asked = self.file.exists()
        return self._asked
