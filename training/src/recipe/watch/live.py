"""What a person sees while it trains: step, loss, tokens/s, step time and MFU, on the screen and in raw/progress.jsonl.

Rank 0 reports some ten times in a run. Nothing waits for it: the loss is copied to the host behind the device's work,
and is reported in a later step, when it has arrived. Times are those that the meter has read by then.
"""

from __future__ import annotations

import contextlib
import json
import statistics
from collections import deque
from collections.abc import Callable
from pathlib import Path

from recipe import group
from recipe.meter import Meter
from recipe.rank import say
from recipe.trajectory import Sent, Trajectory

LINES = 10  # of a run


class Live:
    """`tokens_per_step`: of all ranks; `mfu`: tokens/s of one rank -> MFU. Does nothing on other ranks than 0."""

    def __init__(self, file: Path, steps: int, tokens_per_step: int, mfu: Callable[[float], float | None]) -> None:
        self.file, self.steps, self.tokens_per_step, self.mfu = file, steps, tokens_per_step, mfu
        self.every = max(1, steps // LINES)
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
            loss = sent.values[0][-1].item()
            line, words = {"step": step, "of": self.steps, "loss_of_rank_0": loss}, f"loss {loss:.4f} (this rank)"
            if recent_s := clock.steps[-self.every :]:
                step_s = statistics.fmean(recent_s)
                speed = self.tokens_per_step / step_s
                mfu = self.mfu(speed / group.WORLD)
                line |= {"step_s": step_s, "tokens_per_s": speed, "mfu": mfu}
                words += f"  {speed:,.0f} tokens/s  {1000 * step_s:.0f} ms"
                words += "" if mfu is None else f"  MFU {100 * mfu:.1f} %"
            with contextlib.suppress(OSError), self.file.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(line) + "\n")  # for people: a full disk ends no training here
            say(f"step {step}/{self.steps}  {words}")
