"""What is measured, and how.

A step runs from the end of the step before to its own end: a clock that starts when the batch is there would hide data
loading. On a CPU the ends are read from the wall clock. On a GPU they are CUDA events on the compute stream: exact on the
device, and no step waits for the host to read one; they are read after training. So no synchronisation falls into the timed
window. The steady window starts after the warm-up steps; start-up is reported apart and is never inside a throughput number.
"""

from __future__ import annotations

import math
import resource
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import group
import torch
from bringup.records import Memory, StepTime
from transformers import TrainerCallback

GIB = 2**30


class Meter(TrainerCallback):
    """Marks the ends of steps, then calls `after_step(step)` on every rank, step = 1, 2, ..."""

    def __init__(self, after_step: Callable[[int], None]) -> None:
        self.after_step = after_step
        self.ends: list[Any] = []  # end of step i at index i; index 0 is the start of training

    def mark(self) -> None:
        if group.CUDA:
            event = torch.cuda.Event(enable_timing=True)
            event.record()
            self.ends.append(event)
        else:
            self.ends.append(time.perf_counter())

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.mark()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.mark()
        self.after_step(state.global_step)

    def step_times_s(self) -> list[float]:
        """Seconds per optimizer step of this rank."""
        if group.CUDA:
            torch.cuda.synchronize()
            return [a.elapsed_time(b) / 1000 for a, b in zip(self.ends, self.ends[1:], strict=False)]
        return [b - a for a, b in zip(self.ends, self.ends[1:], strict=False)]


@dataclass(frozen=True)
class Steady:
    """The steady window over all ranks."""

    step_time_s: StepTime
    tokens_per_s: float  # all ranks together


def steady_window(step_times_s: list[list[float]], nodes: list[str], warmup_steps: int, tokens_per_step: int) -> Steady:
    """Reduce step times (index = rank, then step) after warm-up.

    tokens_per_s = tokens_per_step x steps / sum over steps of the slowest rank's time: a global step ends with its last rank.
    The percentiles are over all ranks and steps; the slowest rank is the one with the highest median.
    ValueError when no step is left.
    """
    windows = [times[warmup_steps:] for times in step_times_s]
    if not windows or not windows[0]:
        raise ValueError(f"no step is left after {warmup_steps} warm-up steps")
    slowest_per_step = [max(times) for times in zip(*windows, strict=True)]
    ordered = sorted(time_s for window in windows for time_s in window)
    medians = [statistics.median(window) for window in windows]
    slowest = medians.index(max(medians))
    step_time = StepTime(
        p50=statistics.median(ordered),
        p95=ordered[math.ceil(0.95 * len(ordered)) - 1],
        max=ordered[-1],
        window_steps=len(slowest_per_step),
        slowest_rank=slowest,
        slowest_rank_node=nodes[slowest],
    )
    return Steady(step_time, tokens_per_step * len(slowest_per_step) / sum(slowest_per_step))


def forget_peaks() -> None:
    """Before the first step: under FSDP each rank held the whole model while it was built, which is no part of training."""
    if group.CUDA:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def rank_memory_gib() -> tuple[float, float | None, float | None]:
    """Peak of this rank: resident host memory; device memory allocated and reserved by torch, None without a GPU."""
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts KiB
    if not group.CUDA:
        return host, None, None
    return host, torch.cuda.max_memory_allocated() / GIB, torch.cuda.max_memory_reserved() / GIB


def memory(ranks: list[tuple[float, float | None, float | None]]) -> Memory:
    """Maximum over ranks. max_rank is the rank with the highest device peak, without a GPU the highest host peak."""
    host, allocated, reserved = zip(*ranks, strict=True)
    judged = host if None in allocated else allocated
    return Memory(
        host_rss_gib=max(host),
        device_allocated_gib=None if None in allocated else max(allocated),
        device_reserved_gib=None if None in reserved else max(reserved),
        max_rank=judged.index(max(judged)),
    )
