"""End early, together, with a checkpoint: when a file appears, or when the time limit is near.

A batch script makes the file when Slurm warns it, two minutes before the time limit. A large checkpoint takes longer
than that. So rank 0 knows when the job ends (--ends-at), and how long its last checkpoint is going to take.

Rank 0 looks for both. All ranks have to agree on the step: otherwise one saves while another trains on. The flag is
sent in a small all_reduce, which begins at the end of a step and is read at the end of the next, so that no step waits
for it. When there is nothing to look for, nothing is sent.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainerCallback

from recipe import group
from recipe.rank import say
from recipe.strategy import Refused

LOOK_EVERY_S = 0.5
LEAST_S = 120.0  # what the batch scripts ask of Slurm: --signal=B:USR1@120
FACTOR = 2  # a save may take twice as long as the one before, or as predicted: other jobs write at the same time
END_S = 60.0  # after the save the ranks end, and the batch script reads counters and requeues the job
STEPS = 2  # until all ranks agree, and the step that is under way


@dataclass(frozen=True)
class Lead:
    """How long before the time limit the training stops, and what that was taken from."""

    seconds: float
    source: str


class Deadline:
    """The end of the job. `ends_at`: unix seconds, None where it is not known; `asked_s`: --stop-lead. A collective:
    raises Refused on every rank where that lead is longer than the time that is left."""

    def __init__(self, ends_at: int | None, asked_s: int | None) -> None:
        self.ends_at, self.asked_s = ends_at, asked_s
        self.left_s = math.inf if ends_at is None else ends_at - group.from_first(time.time())
        if asked_s is not None and asked_s >= self.left_s:
            raise Refused(
                f"--stop-lead {asked_s}: expected less than the time limit leaves, observed {self.left_s:.0f} s left: "
                "give a smaller lead, or the job more time"
            )

    def lead(self, save_s: float, source: str, step_s: float) -> Lead:
        """From the seconds of a save, measured or predicted (`source` says which), and of the longest step so far.

        Never more than half of what was left at the start: a job that stops at once, and is requeued, trains nothing.
        """
        if self.asked_s is not None:
            return Lead(self.asked_s, "--stop-lead")
        wanted = FACTOR * save_s + STEPS * step_s + END_S
        if wanted < LEAST_S:
            wanted, source = LEAST_S, "the least"
        if wanted > self.left_s / 2:
            wanted, source = self.left_s / 2, f"half of the time that was left, where {wanted:.0f} s were wanted"
        return Lead(wanted, source)

    def is_near(self, lead: Lead) -> bool:
        return self.ends_at is not None and time.time() >= self.ends_at - lead.seconds


class StopOnRequest(TrainerCallback):
    """`step`: after which it stopped; None while it goes on. `save_s`: what a save takes, and how that is known."""

    def __init__(self, file: Path | None, deadline: Deadline, save_s: Callable[[], tuple[float, str]]) -> None:
        self.file, self.deadline, self.save_s = file, deadline, save_s
        self.looks = file is not None or deadline.ends_at is not None
        self.step: int | None = None
        self._begun_s = math.inf
        self._longest_step_s = 0.0
        self._asked = False
        self._looked_s = 0.0
        self._flag = torch.zeros(1, dtype=torch.int32, device=group.DEVICE)
        self._work: Any = None
        if self.looks and group.CUDA:
            self._side = torch.cuda.Stream()
            self._host = torch.zeros(1, dtype=torch.int32, pin_memory=True)
            self._copied = torch.cuda.Event()

    @property
    def lead(self) -> Lead | None:
        """As it is now; None where the end of the job is not known."""
        return None if self.deadline.ends_at is None else self.deadline.lead(*self.save_s(), self._longest_step_s)

    def fields(self) -> dict[str, Any]:
        """Its fields in records.CheckpointRoom."""
        lead = self.lead
        return {} if lead is None else {"stop_lead_s": lead.seconds, "stop_lead_source": lead.source}

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._begun_s = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._longest_step_s = max(self._longest_step_s, time.monotonic() - self._begun_s)
        if not self.looks or self.step is not None:
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
            # copied beside the compute stream: reading it there would wait for every kernel that is queued
            if group.CUDA:
                with torch.cuda.stream(self._side):
                    self._work.wait()
                    self._host.copy_(self._flag, non_blocking=True)
                    self._copied.record()
        return agreed

    def _finish(self) -> bool:
        """What all ranks requested at the end of the step before."""
        if group.CUDA:
            self._copied.synchronize()
            requested = bool(self._host.item())
        else:
            self._work.wait()
            requested = bool(self._flag.item())
        self._work = None
        return requested

    def _look(self) -> bool:
        now = time.monotonic()
        if not self._asked and now - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now
            self._asked = (self.file is not None and self.file.exists()) or self._time_is_up()
        return self._asked

    def _time_is_up(self) -> bool:
        lead = self.lead
        if lead is None or not self.deadline.is_near(lead):
            return False
        say(f"the time limit is near: {lead.seconds:.0f} s are kept for the last checkpoint ({lead.source})")
        if self.file is not None:
            self.file.touch()  # the batch script requeues a job that was stopped
        return True
