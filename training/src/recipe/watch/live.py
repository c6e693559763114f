"""What a person sees while it trains: step, loss, tokens/s, step time and MFU, on the screen and in raw/progress.jsonl.

Rank 0 reports some ten times in a run. Nothing waits for it: the loss is copied to the host behind the device's work,
and is reported in a later step, when it has arrived. Times are those that the meter has read by then.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from bringup.formulae import flops
from bringup.records import ModelShape

from recipe import group
from recipe.meter import Meter
from recipe.trajectory import Trajectory
from recipe.watch.finite import Sent

LINES = 10  # of a run


class Live:
    """`tokens_per_step`: of all ranks. Does nothing on other ranks than 0."""

    def __init__(
        self,
        file: Path,
        steps: int,
        tokens_per_step: int,
        say: Callable[[str], None],
        mfu: Callable[[float], float | None],
    ) -> None:
        self.file, self.steps, self.tokens_per_step = file, steps, tokens_per_step
        self.say, self.mfu = say, mfu
        self.every = max(1, steps // LINES)
        self.begun_s = time.monotonic()
        self.on_the_way: deque[tuple[int, Sent]] = deque()  # step, loss

    def after_step(self, step: int, trajectory: Trajectory, clock: Meter) -> None:
        if group.RANK != 0:
            return
        self.tell(clock)
        if step % self.every == 0 or step == self.steps:
            self.on_the_way.append((step, Sent(trajectory.recent(1)[0])))
            self.tell(clock)  # on a CPU it is there already

    def tell(self, clock: Meter) -> None:
        """Print what has arrived."""
        while self.on_the_way and self.on_the_way[0][1].arrived():
            step, sent = self.on_the_way.popleft()
            recent_s = clock.steps[-self.every :]
            step_s = statistics.fmean(recent_s) if recent_s else None
            speed = self.tokens_per_step / step_s if step_s else None
            share = self.mfu(speed / group.WORLD) if speed else None
            line = {
                "step": step,
                "of": self.steps,
                "loss_of_rank_0": sent.values[0][-1].item() if len(sent.values[0]) else None,
                "step_s": step_s,
                "tokens_per_s": speed,
                "mfu": share,
                "since_start_s": round(time.monotonic() - self.begun_s, 3),
            }
            with contextlib.suppress(OSError), self.file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")  # for people: a full disk ends no training here
            self.say(in_words(line))


def in_words(line: dict[str, Any]) -> str:
    words = [f"step {line['step']}/{line['of']}"]
    if line["loss_of_rank_0"] is not None:
        words.append(f"loss {line['loss_of_rank_0']:.4f} (this rank)")
    if line["tokens_per_s"] is not None:
        words.append(f"{line['tokens_per_s']:,.0f} tokens/s")
        words.append(f"{1000 * line['step_s']:.0f} ms")
    if line["mfu"] is not None:
        words.append(f"MFU {100 * line['mfu']:.1f} %")
    return "  ".join(words)


def mfu_of(
    shape: ModelShape, sequence_length: int, compute_dtype: str, profile: flops.Profile | None
) -> Callable[[float], float | None]:
    """Return tokens/s of one rank -> MFU; None where no peak or no FLOPs are known."""
    gpu = torch.cuda.get_device_name(group.DEVICE) if group.CUDA else None
    return lambda tokens_per_s: flops.efficiency(shape, sequence_length, tokens_per_s, gpu, compute_dtype, profile).mfu
