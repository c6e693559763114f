"""What part of a step is communication: read by torch.profiler in a few more steps, after the training.

Why after it: the profiler costs time in every step, and nothing may wait in the steps that are measured. Everything
that is recorded of the training was written before, so these steps change no result. Why on all ranks: if one rank
alone is profiled, it is slower, and the others are seen waiting for it. The cost is bounded: --profiled-steps, fewer of
many micro-steps, and one step to warm up.

total     time in which a collective of this rank was under way. It begins when the rank is ready and ends when its data
          are there, so it includes the wait for slower ranks. The rank with the shortest time waits least
exposed   the part of it in which this rank computed nothing: what the step would be shorter without it

On a GPU both are read from kernels: those of NCCL, and all others (as Meta's Holistic Trace Analysis defines the
overlap). On a CPU they are the ranges that gloo and torch's operators leave. Fetching rows is not among it.

With --trace rank 0 also keeps what the profiler saw, for a viewer, and says what its step was spent on.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from bringup.formulae import traffic
from bringup.formulae.models import job_of
from bringup.records import CollectiveTime, Communication, KernelClasses, ModelShape, RunArgs
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, supported_activities

from recipe import group
from recipe.no_device_waits import without_waits
from recipe.rank import one_line

T = TypeVar("T")
Interval = tuple[float, float]  # begin and end, microseconds
OTHER = "other"  # a collective of another kind: broadcast, barrier, send and receive
NOT_ENDED = "the steps that are profiled after the training (--profiled-steps) did not end"
MICRO_STEPS = 32  # that are profiled, at most, but one whole step: each leaves thousands of events, read in Python
KINDS = {"allreduce": "all_reduce", "allgather": "all_gather", "reducescatter": "reduce_scatter"}
_COLLECTIVE = re.compile(r"gloo:|nccl\w*Kernel")
NO_CUPTI = "CUPTI is not available here, so this torch records no kernel of a GPU"
_COMPUTED_ON_CPU = ("aten::", "Torch-Compiled Region")
_COPIED = re.compile(
    r"Memcpy|Memset|aten::(copy_|to|_to_copy|clone|contiguous|empty\w*|zeros\w*|zero_|fill_)$"
    # torch's own kernels for it: copies (also to another type), fills, and FSDP's into and out of what it sends
    r"|.*(_copy_kernel_cuda|FillFunctor|CatArrayBatchedCopy|split_with_sizes_copy|chunk_cat_cuda)"
)
TRACE = "raw/trace.rank0.json.gz"  # as chrome://tracing and ui.perfetto.dev read it
NO_TRACE = "no trace was requested (--trace)"


@dataclass(frozen=True)
class Profiled:
    """What was profiled on one rank, in seconds per step."""

    step_s: float
    total_s: float
    exposed_s: float
    seconds: dict[str, float]  # by kind of collective
    calls: dict[str, float]
    compute_s: float = 0.0
    memory_s: float = 0.0  # in which it copied or filled, and computed nothing
    trace_problem: str | None = None  # why the trace was not kept, where it was wanted


def kind_of(name: str) -> str | None:
    """all_reduce, all_gather, reduce_scatter or other; None: not a collective. name: of a kernel or a range."""
    return _kind(name) if _COLLECTIVE.match(name) else None


def _kind(name: str) -> str:
    flat = name.lower().replace("_", "")
    return next((kind for stem, kind in KINDS.items() if stem in flat), OTHER)


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """In order, without overlaps."""
    joined: list[Interval] = []
    for begin, end in sorted(intervals):
        if joined and begin <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((begin, end))
    return joined


def length(intervals: Iterable[Interval]) -> float:
    """Time in which at least one of them lasts."""
    return sum(end - begin for begin, end in merged(intervals))


def exposed(communication: list[Interval], compute: list[Interval]) -> float:
    """Time in which there is communication and no computation."""
    alone = length([*communication, *compute]) - length(compute)
    return min(max(alone, 0.0), length(communication))  # differences of long times are rounded


def read(events: Sequence[Any], steps: int, seconds: float, cuda: bool) -> Profiled:
    """events: FunctionEvents of `steps` steps, which took `seconds`."""
    by_kind: dict[str, list[Interval]] = {}
    compute: list[Interval] = []
    copies: list[Interval] = []
    events = sorted(events, key=_interval)
    kinds = _as_called([event.name for event in events])
    for event, kind in zip(events, kinds, strict=True):
        if cuda != (event.device_type == DeviceType.CUDA):
            continue  # on a GPU the host only launches
        if kind is not None:
            by_kind.setdefault(kind, []).append(_interval(event))
        elif cuda or event.name.startswith(_COMPUTED_ON_CPU):
            (copies if _COPIED.match(event.name) else compute).append(_interval(event))
    busy = [*compute, *copies]
    communication = list(itertools.chain.from_iterable(by_kind.values()))
    per_step = 1e-6 / steps
    return Profiled(
        step_s=seconds / steps,
        total_s=length(communication) * per_step,
        exposed_s=exposed(communication, busy) * per_step,
        seconds={kind: length(intervals) * per_step for kind, intervals in by_kind.items()},
        calls={kind: len(intervals) / steps for kind, intervals in by_kind.items()},
        compute_s=length(compute) * per_step,
        memory_s=(length(busy) - length(compute)) * per_step,
    )


def _interval(event: Any) -> Interval:
    return float(event.time_range.start), float(event.time_range.end)


def _as_called(names: list[str]) -> list[str | None]:
    """The kind of each event that is a collective. gloo makes a reduce_scatter of an all_reduce, and names it so: there
    the calls, which come in the same order, say what it is."""
    kinds = [kind_of(name) for name in names]
    alike = ("all_reduce", "reduce_scatter")
    ran = [index for index, kind in enumerate(kinds) if kind in alike and names[index].startswith("gloo:")]
    called = [kind for kind in (_kind(name) for name in names if name.startswith("c10d::")) if kind in alike]
    if len(called) == len(ran):  # DDP calls without leaving a range
        for index, kind in zip(ran, called, strict=True):
            kinds[index] = kind
    return kinds


def measure(trainer: Any, resolved: RunArgs, shape: ModelShape, run_dir: Path) -> dict[str, Any]:
    """As fields(). After the training. A collective. The model goes on learning, so everything else has to be recorded
    before."""
    if resolved.world_size == 1 and not resolved.trace:
        return fields(None, "one rank sends nothing")
    if resolved.profiled_steps == 0:
        return fields(None, "no step was profiled (--profiled-steps 0)")
    steps = max(1, min(resolved.profiled_steps, MICRO_STEPS // resolved.gradient_accumulation))
    trace = run_dir / TRACE if resolved.trace and group.RANK == 0 else None
    ranks = group.gather(_of_rank(trainer, resolved, steps, trace), Profiled | str)
    problems = [f"rank {number}: {rank}" for number, rank in enumerate(ranks) if isinstance(rank, str)]
    kernels = _classes(ranks[0], steps) if resolved.trace else (None, NO_TRACE)
    if resolved.world_size == 1:
        return fields(None, "one rank sends nothing", *kernels)
    if problems:
        why = f"torch.profiler failed on {len(problems)} of {len(ranks)} ranks, {problems[0]}"
        return fields(None, why, *kernels)
    return fields(*of_all([rank for rank in ranks if not isinstance(rank, str)], steps, resolved, shape), *kernels)


def fields(
    seen: Communication | None,
    reason: str | None,  # why null
    kernels: KernelClasses | None = None,
    kernels_reason: str | None = NO_TRACE,
) -> dict[str, Any]:
    """Of records.TrainMetrics. The share is exposed communication / step, the median of the ranks."""
    share = None if seen is None else min(1.0, statistics.median(seen.exposed_s) / seen.step_s)
    return {
        "communication": seen,
        "communication_share": share,
        "communication_reason": reason,
        "kernels": kernels,
        "kernels_reason": kernels_reason,
    }


def _classes(rank: Profiled | str, steps: int) -> tuple[KernelClasses | None, str | None]:
    """What a step of the rank that kept the trace was spent on."""
    why = rank if isinstance(rank, str) else rank.trace_problem
    if isinstance(rank, str) or why is not None:
        return None, why
    known_s = rank.compute_s + rank.memory_s + rank.exposed_s
    return KernelClasses(
        trace=TRACE,
        steps=steps,
        step_ms=1e3 * rank.step_s,
        compute_ms=1e3 * rank.compute_s,
        communication_ms=1e3 * rank.exposed_s,
        memory_ms=1e3 * rank.memory_s,
        other_ms=1e3 * max(0.0, rank.step_s - known_s),
    ), None


def _of_rank(trainer: Any, resolved: RunArgs, steps: int, trace: Path | None) -> Profiled | str:
    batches = trainer.get_train_dataloader()
    rows, tokens = trainer.get_batch_samples(
        iter(batches), trainer.args.gradient_accumulation_steps, trainer.args.device
    )
    with contextlib.nullcontext() if resolved.recipe == "stock" else without_waits():
        return _profiled(lambda: one_step(trainer, rows, tokens), steps, trace)


def one_step(trainer: Any, rows: list[dict[str, Any]], tokens: Any) -> None:
    """An optimizer step as Trainer makes it; rows: of each micro-step."""
    model, gradients = trainer.model_wrapped, trainer.accelerator.gradient_state
    own = trainer.is_distributed_loading_by_transformers  # which reduces then, and not accelerate
    keep = trainer._defer_fsdp_gradient_reduction if own else lambda: trainer.accelerator.no_sync(model)
    in_each = gradients.plugin_kwargs.get("sync_each_batch", False)
    for index, inputs in enumerate(rows):
        last = index == len(rows) - 1
        gradients._set_sync_gradients(last)
        with contextlib.nullcontext() if last or in_each else keep():
            copies = {name: each.clone() for name, each in inputs.items()}  # context parallelism cuts them in place
            trainer.training_step(model, copies, tokens)
    trainer._clip_grad_norm(model)
    trainer.optimizer.step()
    model.zero_grad()


def _profiled(step: Callable[[], None], steps: int, trace: Path | None = None) -> Profiled | str:
    """What the profiler read; or why it failed. The steps are made all the same: other ranks are in them too, and a
    training that is done does not fail because a profiler cannot run here, or a disk is full."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")
    activity = ProfilerActivity.CUDA if group.CUDA else ProfilerActivity.CPU
    problems = [] if activity in supported_activities() else [NO_CUPTI]

    def tried(action: Callable[[], T]) -> T | None:
        """None: it failed, or something before it."""
        if not problems:
            try:
                return action()
            except Exception as error:  # noqa: BLE001  # whatever torch, Kineto, CUPTI and a full disk say
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
    measured = tried(lambda: read(seen.events(), steps, seconds, group.CUDA))
    if measured is None:
        return problems[0]
    if trace is not None:
        tried(lambda: seen.export_chrome_trace(str(trace)))
    return replace(measured, trace_problem=f"the trace was not kept: {problems[0]}" if problems else None)


def of_all(
    ranks: list[Profiled], steps: int, resolved: RunArgs, shape: ModelShape
) -> tuple[Communication | None, str | None]:
    """ranks: index = rank. steps: that were profiled."""
    if not all(rank.total_s > 0 for rank in ranks):
        silent = [number for number, rank in enumerate(ranks) if rank.total_s <= 0]
        return None, f"torch.profiler saw no collective on {len(silent)} of {len(ranks)} ranks, first rank {silent[0]}"
    step_s = statistics.median(rank.step_s for rank in ranks)
    collectives, reason = _collectives(ranks, resolved, shape)
    return Communication(
        steps=steps,
        step_s=step_s,
        total_s=[rank.total_s for rank in ranks],
        exposed_s=[rank.exposed_s for rank in ranks],
        collectives=collectives,
        collectives_reason=reason,
    ), None


def _collectives(
    ranks: list[Profiled], resolved: RunArgs, shape: ModelShape
) -> tuple[list[CollectiveTime], str | None]:
    """Bytes by formula / time of the rank that waited least for the others."""
    if resolved.context_parallel * resolved.tensor_parallel > 1:
        return [], "no formula for what context and tensor parallelism send"
    times = []
    for collective in traffic.collectives(shape, job_of(resolved)):
        kind = collective.operation
        quickest = min(
            (rank for rank in ranks if rank.seconds.get(kind)), key=lambda rank: rank.seconds[kind], default=None
        )
        if quickest is None:
            return [], f"torch.profiler saw no {kind}, which the strategy has"
        seconds = quickest.seconds[kind]
        times.append(
            CollectiveTime(
                operation=kind,
                over=collective.over,
                ranks=collective.ranks,
                calls=quickest.calls[kind],
                calls_predicted=collective.calls,
                message_bytes=collective.message,
                sent_bytes=collective.sent,
                seconds=seconds,
                busbw_gb_per_s=collective.sent / seconds / 1e9,
            )
        )
    return times, None
