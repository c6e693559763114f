"""A rank that makes no progress leaves its stack, and does not stay for ever.

Three clocks, reset at the end of every step; `timeout` is --timeout:

timeout / 2     the stacks of all its threads go to RUN_DIR/raw/stacks/rank<R>.txt, its progress to rank<R>.json. If
                the interpreter is locked, faulthandler's own thread in C writes the stacks at 3/4 of the timeout
timeout         the collectives of the other ranks give up, and the launchers end the job (group.start)
2 x timeout     while training, 10 x in the first two steps, which may compile: it ends itself with exit code 1. If the
                interpreter is locked, the kernel ends it with SIGALRM a few seconds later

A stack alone is not a fault: a model may load for long. It is judged when the rank has no end.
"""

import contextlib
import faulthandler
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import ras
from progress import where
from transformers import TrainerCallback

from recipe import group
from recipe.arguments import FAST_WARMUP, SLOW
from recipe.rank import node_name

LOCKED = 0.75  # of the timeout: no stack was written at half of it
SET_BACK_EVERY_S = 1.0  # starting faulthandler's thread costs 0.1 ms: not in every step
LAST_RESORT_S = 10.0
SLOW_STEPS = FAST_WARMUP  # the first also loads and builds what is made on demand


class Watch(TrainerCallback):
    """One per rank. When the rank gives up, another thread calls `stuck(message)`; then the process ends."""

    def __init__(self, run_dir: Path, timeout_s: int, stuck: Callable[[str], None]) -> None:
        folder = run_dir / "raw" / "stacks"
        folder.mkdir(exist_ok=True)
        self.file = folder / f"rank{group.RANK}.txt"
        self.timeout_s, self.stuck = timeout_s, stuck
        self.stream = self.file.open("w", encoding="utf-8")
        self.step = 0
        self.training = False
        self.steps = 0  # that ended in this process, as far as SLOW_STEPS
        self.told = False  # that there was no progress for a while
        self.closed = threading.Event()
        self._set_back()
        # the stack of a healthy rank: kill -USR2 PID
        faulthandler.register(signal.SIGUSR2, file=self.stream, all_threads=True)
        threading.Thread(target=self._look, name="watch", daemon=True).start()

    def _set_back(self) -> None:
        self.since = time.monotonic()
        if self.told:  # it went on after all
            self.told = False
            self.stream.seek(0)
            self.stream.truncate()
            self.file.with_suffix(".json").unlink(missing_ok=True)
        faulthandler.dump_traceback_later(LOCKED * self.timeout_s, file=self.stream)
        self.longest_s = (2 if self.steps == SLOW_STEPS else SLOW) * self.timeout_s  # that a step may take
        if self.training:
            signal.setitimer(signal.ITIMER_REAL, self.longest_s + LAST_RESORT_S)

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.training = True
        self._set_back()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.step = state.global_step
        if self.steps < SLOW_STEPS or time.monotonic() - self.since > SET_BACK_EVERY_S:
            self.steps = min(self.steps + 1, SLOW_STEPS)
            self._set_back()

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.training = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._set_back()

    @contextlib.contextmanager
    def patience(self, seconds: int) -> Iterator[None]:
        """Let what is no step, a large checkpoint, take so long, here and on ranks that wait for one another."""
        usual, self.timeout_s = self.timeout_s, max(seconds, self.timeout_s)
        self._set_back()
        try:
            with group.patience(seconds, usual):
                yield
        finally:
            self.timeout_s = usual
            self._set_back()

    def close(self) -> None:
        """Close when the rank has ended. A file without a stack is removed."""
        self.closed.set()
        signal.setitimer(signal.ITIMER_REAL, 0)
        faulthandler.cancel_dump_traceback_later()
        faulthandler.unregister(signal.SIGUSR2)
        self.stream.close()
        if self.file.stat().st_size == 0:
            self.file.unlink()

    def _look(self) -> None:
        while not self.closed.wait(min(1.0, self.timeout_s / 10)):
            quiet_s = time.monotonic() - self.since
            if quiet_s > self.timeout_s / 2 and not self.told:
                self.told = True
                faulthandler.cancel_dump_traceback_later()
                faulthandler.dump_traceback(file=self.stream)
                # `entered`: collectives begun. The others wait for the rank with the fewest
                how_far = {"node": node_name(), "rank": group.RANK, "step": self.step, "quiet_s": round(quiet_s, 1)}
                how_far["entered"] = group.collectives_begun()
                self.file.with_suffix(".json").write_text(json.dumps(how_far) + "\n", encoding="utf-8")
                nodes = group.WORLD // group.LOCAL_WORLD
                if group.CUDA and ras.is_witness(group.RANK // group.LOCAL_WORLD, nodes, group.LOCAL_RANK):
                    ras.keep(self.file.parents[1] / f"nccl-{nodes}/ras.rank{group.RANK}.txt")
            if self.training and quiet_s > self.longest_s:
                self.stuck(f"no step ended within {self.longest_s:g} s after step {self.step}, {where()}")
                os._exit(1)
