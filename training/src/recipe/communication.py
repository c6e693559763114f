"""What part of a step is communication: read by torch.profiler in a few more steps, after the training.

Why after it: the profiler costs time in every step; the records are written before. Why on all ranks: if one rank
alone is profiled, it is slower, and the others are seen waiting for it.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from bringup.training.formulae import overlap
from bringup.training.records import ModelShape, RunArgs
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, supported_activities

from recipe import group
from recipe.fast import without_waits
from recipe.rank import one_line

T = TypeVar("T")
NOT_ENDED = "the steps that are profiled after the training (--profiled-steps) did not end"
MICRO_STEPS = 32  # that are profiled, at most, but one whole step: each leaves thousands of events, read in Python
NO_CUPTI = "CUPTI is not available here, so this torch records no kernel of a GPU"


def measure(trainer: Any, resolved: RunArgs, shape: ModelShape) -> dict[str, Any]:
    """Measure overlap.fields() after the training. A collective. The model goes on learning: record all else before."""
    if resolved.world_size == 1:
        return overlap.fields(None, "one rank sends nothing")
    if resolved.profiled_steps == 0:
        return overlap.fields(None, "no step was profiled (--profiled-steps 0)")
    steps = max(1, min(resolved.profiled_steps, MICRO_STEPS // resolved.gradient_accumulation))
    batches = iter(trainer.get_train_dataloader())
    rows, tokens = trainer.get_batch_samples(batches, trainer.args.gradient_accumulation_steps, trainer.args.device)
    with without_waits():
        of_rank = _profiled(lambda: one_step(trainer, rows, tokens), steps)
    ranks = group.gather(of_rank, overlap.Profiled | str)
    failed = [f"rank {number}: {why}" for number, why in enumerate(ranks) if isinstance(why, str)]
    if failed:
        return overlap.fields(None, f"torch.profiler failed on {len(failed)} of {len(ranks)} ranks, {failed[0]}")
    return overlap.fields(*overlap.of_all(ranks, steps, resolved, shape))  # type: ignore[arg-type]  # none is a text


def one_step(trainer: Any, rows: list[dict[str, Any]], tokens: Any) -> None:
    """Make an optimizer step as Trainer does; rows: of each micro-step."""
    model, gradients = trainer.model_wrapped, trainer.accelerator.gradient_state
    in_each = gradients.plugin_kwargs.get("sync_each_batch", False)
    for index, inputs in enumerate(rows):
        last = index == len(rows) - 1
        gradients._set_sync_gradients(last)
        with contextlib.nullcontext() if last or in_each else trainer.accelerator.no_sync(model):
            trainer.training_step(model, dict(inputs), tokens)
    trainer._clip_grad_norm(model)
    trainer.optimizer.step()
    model.zero_grad()


def _profiled(step: Callable[[], None], steps: int) -> overlap.Profiled | str:
    """Return what the profiler read; or why it failed. The steps are made all the same: other ranks are in them too,
    and a training that is done does not fail because a profiler cannot run here."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    activity = ProfilerActivity.CUDA if group.CUDA else ProfilerActivity.CPU
    problems = [] if activity in supported_activities() else [NO_CUPTI]

    def tried(action: Callable[[], T]) -> T | None:
        """Try it. None: it failed, or something before it."""
        try:
            return None if problems else action()
        except Exception as error:  # noqa: BLE001  # whatever torch, Kineto and CUPTI say
            problems.append(one_line(f"{type(error).__name__}: {error}"))
            return None

    def settled() -> float:
        group.wait_for_device()
        return time.perf_counter()

    seen = profile(activities=[activity])
    tried(seen.prepare_trace)
    step()  # the ranks start apart, because preparing the profiler takes each its own time
    settled()
    tried(seen.start_trace)
    begun = settled()
    for _ in range(steps):
        step()
    seconds = settled() - begun
    tried(seen.stop_trace)
    measured = tried(lambda: overlap.read(_events(seen.events(), group.CUDA), steps, seconds, group.CUDA))
    return problems[0] if measured is None else measured


def _events(events: Iterable[Any], cuda: bool) -> list[overlap.Event]:
    """events: FunctionEvents. On a GPU the host only launches."""
    there = DeviceType.CUDA if cuda else DeviceType.CPU
    spans = ((event.name, event.time_range, event.device_type) for event in events)
    return [(name, float(span.start), float(span.end)) for name, span, device in spans if device == there]
