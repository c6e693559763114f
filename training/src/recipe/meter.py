"""What is measured, and how.

A step lasts from the end of the step before to its own end. A clock that starts when the batch is there would hide data
loading. On a CPU the ends are read from the wall clock. On a GPU they are CUDA events on the compute stream: they are
exact on the device, and they are read after they have passed, so that no step waits for the host. So the timed window
holds no synchronisation. Those of the libraries are bypassed (no_device_waits.py). The exception is --cpu-offload,
where the host waits for gradients. The steady window starts after the warm-up steps. Start-up is reported apart and is
never part of a throughput.

In a synchronous training every rank takes as long as the slowest, so step times do not say which rank is slow. So a
rank's own work is timed apart, where it waits for no other rank: fetching rows, the forward pass inside some of the
model's blocks (no strategy communicates there: FSDP gathers before a block), and the optimizer's update.

The host's clock at the begin and the end of every step is kept too, for standstill.py.
"""

from __future__ import annotations

import itertools
import math
import resource
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from bringup.records import Memory, RankTimes, StepTime, Straggler
from transformers import TrainerCallback

from recipe import GIB, group
from recipe.observed_strategy import decoder_layers

PARTS = ("fetch", "forward", "optimizer")
TIMED_BLOCKS = 4  # of the model: enough to see a slow device, few enough to cost nothing


def now(device: bool = True) -> Any:
    """A point in time: on the device's compute stream, or of the host."""
    if not (device and group.CUDA):
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds(start: Any, stop: Any) -> float:
    """Between two points of the same kind. On a GPU both have passed already."""
    return float(stop - start if isinstance(start, float) else start.elapsed_time(stop) / 1000)


class Meter(TrainerCallback):
    """Times the steps of this rank and its own work in them, then calls `after_step(step)`, step = 1, 2, ..."""

    def __init__(self, after_step: Callable[[int], None]) -> None:
        self.after_step = after_step
        self.end: Any = None  # of the last step; before the first, the start of training
        self.begun: dict[str, Any] = {}
        self.spans: list[tuple[str, Any, Any]] = []  # (part, start, stop) of the running step
        # steps whose events may not have passed yet
        self.unread: deque[tuple[Any, Any, list[tuple[str, Any, Any]]]] = deque()
        self.begun_s = 0.0  # of the running step, on the host
        self.spans_s: list[tuple[float, float]] = []  # begin and end of each step, on the host
        self.steps: list[float] = []
        self.own: dict[str, list[float]] = {part: [] for part in PARTS}  # seconds per step, as far as steps were read

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.end, self.begun_s = now(), time.perf_counter()
        self.spans.clear()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.start("optimizer")

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.stop("optimizer")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        end = now()
        self.unread.append((self.end, end, self.spans))
        self.end, self.spans = end, []
        self.spans_s.append((self.begun_s, time.perf_counter()))
        self.begun_s = self.spans_s[-1][1]
        self._read_passed()
        self.after_step(state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        # a checkpoint is not part of the step after it: its own seconds are in metrics.checkpoint
        self.end, self.begun_s = now(), time.perf_counter()

    def start(self, part: str, key: str = "") -> None:
        self.begun[part + key] = now(device=part != "fetch")

    def stop(self, part: str, key: str = "") -> None:
        start = self.begun.pop(part + key, None)
        # activation checkpointing leaves a block in the middle when it has recomputed what it needs
        if start is not None:
            self.spans.append((part, start, now(device=part != "fetch")))

    def timed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """The same batches; the time to get each counts as fetch."""
        while True:
            self.start("fetch")
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.stop("fetch")
            yield batch

    def time_blocks(self, model: Any) -> None:
        """Before the model is wrapped, so that FSDP's hooks, which gather the parameters, stay outside."""
        layers = decoder_layers(model)
        for block in layers[:: max(1, math.ceil(len(layers) / TIMED_BLOCKS))]:
            block.register_forward_pre_hook(self._before_block)
            block.register_forward_hook(self._after_block)

    @torch.compiler.disable  # a compiled block has its hooks inside
    def _before_block(self, block: torch.nn.Module, inputs: Any) -> None:
        self.start("forward", str(id(block)))

    @torch.compiler.disable
    def _after_block(self, block: torch.nn.Module, inputs: Any, output: Any) -> None:
        self.stop("forward", str(id(block)))

    def _read_passed(self) -> None:
        while self.unread and (not group.CUDA or self.unread[0][1].query()):
            start, end, spans = self.unread.popleft()
            self.steps.append(seconds(start, end))
            for part in PARTS:
                self.own[part].append(math.fsum(seconds(a, b) for name, a, b in spans if name == part))

    def step_times_s(self) -> list[float]:
        """Seconds per optimizer step of this rank. After training: on a GPU it waits for what is still running."""
        group.wait_for_device()
        self._read_passed()
        return self.steps

    def steps_unix_s(self) -> list[float]:
        """When the first step began and when each ended, by the clock of this host. A pause for a checkpoint lies in
        the step after it."""
        unix = time.time() - time.perf_counter()
        return [unix + moment for moment in (self.spans_s[0][0], *(end for _, end in self.spans_s))]


@dataclass(frozen=True)
class Steady:
    """The steady window over all ranks."""

    step_time_s: StepTime
    tokens_per_s: float  # all ranks together
    steps_s: list[float]  # each step, from last rank to last rank; their sum is the window


def steady_window(step_times_s: list[list[float]], nodes: list[str], warmup_steps: int, tokens_per_step: int) -> Steady:
    """Reduce step times (index = rank, then step) after warm-up.

    tokens_per_s = tokens_per_step x steps / window. The window is the job's: from when the last rank ended the last
    warm-up step until the last rank ended the last step (_latest_ends). The percentiles are over all ranks and steps,
    each step as long as that rank took; the slowest rank is the one with the highest median. ValueError when no step
    is left.

    Why not the ranks' own times: the ends of a step jitter by rank, and what a rank loses in one step it gains in the
    next. The sum of each step's slowest rank counts every such loss and no gain: 10 % too long at 256 ranks whose ends
    jitter by 3 % of a step. The longest window of a rank still counts the jitter of one end and of one begin: 1.3 % in
    a window of 10 steps. Both grow with the number of ranks, so scaling would look worse than it is.
    """
    windows = [times[warmup_steps:] for times in step_times_s]
    if not windows or not windows[0]:
        raise ValueError(f"no step is left after {warmup_steps} warm-up steps")
    ordered = sorted(time_s for window in windows for time_s in window)
    medians = [statistics.median(window) for window in windows]
    slowest = medians.index(max(medians))
    ends_s = _latest_ends(windows)
    step_time = StepTime(
        p50=statistics.median(ordered),
        p95=percentile_95(ordered),
        max=ordered[-1],
        window_steps=len(windows[0]),
        slowest_rank=slowest,
        slowest_rank_node=nodes[slowest],
    )
    steps_s = [end - begin for begin, end in itertools.pairwise(ends_s)]
    return Steady(step_time, tokens_per_step * len(steps_s) / (ends_s[-1] - ends_s[0]), steps_s)


def _latest_ends(windows: list[list[float]]) -> list[float]:
    """When the last rank ended the last warm-up step, and each step of the window, on one clock.

    Each rank has a clock of its own (a GPU's events, or a host's), so its ends are its step times summed up, from an
    unknown origin. Ranks that train together wait for each other in every step and cannot drift apart: the median of
    the differences to rank 0's ends is the difference of the origins.
    """
    ends = [list(itertools.accumulate(window, initial=0.0)) for window in windows]
    origins = [statistics.median(end - first for end, first in zip(own, ends[0], strict=True)) for own in ends]
    return [max(end - origin for end, origin in zip(step, origins, strict=True)) for step in zip(*ends, strict=True)]


def percentile_95(ordered: list[float]) -> float:
    """Nearest rank: the smallest value that 95 % of the sorted values do not exceed."""
    return ordered[math.ceil(0.95 * len(ordered)) - 1]


def rank_times(ranks: list[tuple[list[float], dict[str, list[float]]]], warmup_steps: int) -> RankTimes:
    """The times of all ranks after warm-up, from the step times and the own times by part of each."""
    steps = [sorted(step_times_s[warmup_steps:]) for step_times_s, _ in ranks]
    own = {part: [statistics.median(parts[part][warmup_steps:]) for _, parts in ranks] for part in PARTS}
    return RankTimes(
        step_p50=[statistics.median(window) for window in steps],
        step_p95=[percentile_95(window) for window in steps],
        step_max=[window[-1] for window in steps],
        **own,
    )


def straggler(times: RankTimes, nodes: list[str]) -> Straggler | None:
    """The rank whose own work takes longest, relative to the lower median of all ranks (of two: to the other rank).

    None with one rank, or when no own work was timed.
    """
    parts = {part: getattr(times, part) for part in PARTS}
    own = [math.fsum(values) for values in zip(*parts.values(), strict=True)]
    median = statistics.median_low(own)
    if len(own) < 2 or median <= 0:
        return None
    slowest = own.index(max(own))
    excess = {part: values[slowest] - statistics.median_low(values) for part, values in parts.items()}
    return Straggler(
        rank=slowest, node=nodes[slowest], slowdown=own[slowest] / median, part=max(excess, key=excess.__getitem__)
    )  # type: ignore[arg-type]  # PARTS are its literals


def forget_peaks() -> None:
    """Before the first step: under FSDP each rank held the whole model while it was built. That is not training."""
    if group.CUDA:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def rank_memory() -> Memory:
    """Of this rank: the peak of its resident host memory; of a GPU the peaks of what torch allocated and reserved, its
    size, and how often torch had to empty its cache to allocate."""
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts KiB
    own = Memory(host_rss_gib=host, device_allocated_gib=None, device_reserved_gib=None, max_rank=group.RANK)
    if not group.CUDA:
        return own
    of_device = {
        "device_allocated_gib": torch.cuda.max_memory_allocated() / GIB,
        "device_reserved_gib": torch.cuda.max_memory_reserved() / GIB,
        "device_total_gib": torch.cuda.get_device_properties(group.DEVICE).total_memory / GIB,
        "allocation_retries": int(torch.cuda.memory_stats().get("num_alloc_retries", 0)),
    }
    return own.model_copy(update=of_device)


def memory(ranks: list[Memory]) -> Memory:
    """Maximum over ranks. max_rank is the rank with the highest device peak, without a GPU the highest host peak."""

    def over(name: str, reduce: Callable[[Any], Any]) -> Any:
        values = [getattr(rank, name) for rank in ranks]
        return None if None in values else reduce(values)

    judged = "host_rss_gib" if over("device_allocated_gib", max) is None else "device_allocated_gib"
    return Memory(
        host_rss_gib=over("host_rss_gib", max),
        device_allocated_gib=over("device_allocated_gib", max),
        device_reserved_gib=over("device_reserved_gib", max),
        max_rank=over(judged, lambda values: values.index(max(values))),
        device_total_gib=over("device_total_gib", min),
        allocation_retries=over("allocation_retries", sum),
    )
