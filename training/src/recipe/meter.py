"""What is measured, and how.

A step lasts from the end of the step before to its own end, data loading included. On a GPU the ends are CUDA events on
the compute stream, read after they have passed, so that no step waits for the host.

In a synchronous training every rank takes as long as the slowest. So a rank's own work is timed apart, where it waits
for no other rank: fetching rows, the forward pass inside some of the model's blocks (no strategy communicates there:
FSDP gathers before a block), and the optimizer's update. And a rank that itself stood still is seen by its heartbeat
(probes/pulse.py) or by its own work in a step, after the warm-up.
"""

import math
import resource
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pulse
import torch
from bringup.training.formulae.pace import PARTS
from bringup.training.records import Memory, Standstill
from transformers import TrainerCallback

from recipe import GIB, group
from recipe.observed_strategy import decoder_layers

TIMED_BLOCKS = 4  # of the model: enough to see a slow device, few enough to cost nothing
LEAST_RATIO = 2  # own work that takes less than twice its median is uneven, and no standstill
NOT_THE_MOST: dict[str, Callable[[Any], Any]] = {"device_total_gib": min, "allocation_retries": sum}  # of all ranks


def now(device: bool = True) -> Any:
    """Take a point in time: on the device's compute stream, or of the host."""
    if not (device and group.CUDA):
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds(start: Any, stop: Any) -> float:
    """Measure between two points of the same kind. On a GPU both have passed already."""
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

    on_save = on_train_begin  # a checkpoint is not part of the step after it: its own seconds are in metrics.checkpoint

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.start("optimizer")

    def on_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.stop("optimizer")

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        end = now()
        self.unread.append((self.end, end, self.spans))
        self.end, self.spans = end, []
        self.spans_s.append((self.begun_s, time.perf_counter()))
        self.begun_s = self.spans_s[-1][1]
        self._read_passed()
        self.after_step(state.global_step)

    def start(self, part: str, key: str = "") -> None:
        self.begun[part + key] = now(device=part != "fetch")

    def stop(self, part: str, key: str = "") -> None:
        # none: activation checkpointing leaves a block in the middle when it has recomputed what it needs
        if (start := self.begun.pop(part + key, None)) is not None:
            self.spans.append((part, start, now(device=part != "fetch")))

    def timed(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Yield the same batches; the time to get each counts as fetch."""
        self.start("fetch")
        for batch in batches:
            self.stop("fetch")
            yield batch
            self.start("fetch")

    def time_blocks(self, model: Any) -> None:
        """Time blocks before the model is wrapped: FSDP's hooks, which gather the parameters, stay outside."""
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
        """Return seconds per optimizer step of this rank. After training: on a GPU it waits for what still runs."""
        group.wait_for_device()
        self._read_passed()
        return self.steps

    def steps_unix_s(self) -> list[float]:
        """Return when the first step began and each ended, Unix s of this host; a checkpoint lies in the next step."""
        unix = time.time() - time.perf_counter()
        return [unix + moment for moment in (self.spans_s[0][0], *(end for _, end in self.spans_s))]


def forget_peaks() -> None:
    """Forget peaks before the first step: under FSDP each rank held the whole model while it was built."""
    if group.CUDA:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def rank_memory() -> Memory:
    """Return memory of this rank: the peak of its resident host memory; of a GPU the peaks of what torch allocated,
    held active and reserved, its size, and how often torch had to empty its cache to allocate."""
    of_device: dict[str, Any] = dict.fromkeys(("device_allocated_gib", "device_reserved_gib"))
    if group.CUDA:
        stats = torch.cuda.memory_stats()
        of_device = {
            "device_allocated_gib": torch.cuda.max_memory_allocated() / GIB,
            "device_reserved_gib": torch.cuda.max_memory_reserved() / GIB,
            "device_active_gib": stats["active_bytes.all.peak"] / GIB,
            "device_total_gib": torch.cuda.get_device_properties(group.DEVICE).total_memory / GIB,
            "allocation_retries": int(stats.get("num_alloc_retries", 0)),
        }
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts KiB
    return Memory(host_rss_gib=host, **of_device)


def memory(ranks: list[Memory]) -> Memory:
    """Return the most of all ranks."""
    values = {name: [getattr(rank, name) for rank in ranks] for name in Memory.model_fields}
    known = {name: NOT_THE_MOST.get(name, max)(each) for name, each in values.items() if None not in each}
    return Memory(**dict.fromkeys(values) | known)  # type: ignore[arg-type]


def standstill(
    gaps: list[pulse.Gap], spans: list[tuple[float, float]], own: dict[str, list[float]], first: int, warmup: int
) -> Standstill:
    """Find the longest standstill of this rank. gaps, spans: by the host's clock; first: the number of the first step
    of `spans`; own: seconds by part, then step."""
    gap_s, index, cpu_s = pulse.longest(gaps, spans[warmup:])
    longest_so_far = Standstill(seconds=gap_s)
    if index is not None:
        longest_so_far = Standstill(seconds=gap_s, step=first + warmup + index, part="process", cpu_s=cpu_s)
    for part in PARTS:
        values = own[part][warmup:]
        longest, usual = max(values), statistics.median(values)
        if longest > LEAST_RATIO * usual and longest - usual > max(pulse.LEAST_S, longest_so_far.seconds):
            step = first + warmup + values.index(longest)
            longest_so_far = Standstill(seconds=longest - usual, step=step, part=part)  # type: ignore[arg-type]  # its literals
    return longest_so_far
