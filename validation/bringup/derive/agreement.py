"""Whether the numbers of a training's records agree with each other. A program that counts wrongly, another version or
a copy of a colleague's writes records that contradict themselves; a comparison would take its speed as it stands."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator

from bringup.records import RunArgs, TrainMetrics

CLOSE = 0.02  # relative: what rounding and a clock leave
CLOCK_S = 0.25  # between a host's clock and the timers of steps
LONGER, SHORTER = 2.0, 0.25  # times what the host's clock saw; what is between two steps is in no step
AHEAD = 2  # steps that a host may be ahead of its GPU, whose events time them


def contradictions(args: RunArgs, metrics: TrainMetrics) -> Iterator[str]:
    """Yield one sentence each: what a number is, and what the others make of it."""
    if args.world_size != metrics.world_size:
        yield f"run_args.json has world_size {args.world_size}, metrics.json {metrics.world_size}"
    rows = args.global_batch * args.sequence_length
    yield from _differ("tokens_per_step", metrics.tokens_per_step, rows, "global batch times sequence length")
    if metrics.steps_s:
        speed = metrics.tokens_per_step / statistics.fmean(metrics.steps_s)
        yield from _differ("tokens_per_s", metrics.tokens_per_s, speed, "tokens_per_step over the mean of steps_s")
        yield from _clock(metrics)
    each = metrics.tokens_per_s / metrics.world_size
    yield from _differ("tokens_per_s_per_rank", metrics.tokens_per_s_per_rank, each, "tokens_per_s over the ranks")
    times, p50 = metrics.rank_times_s, metrics.step_time_s.p50
    if not min(times.step_p50) * (1 - CLOSE) <= p50 <= max(times.step_p50) * (1 + CLOSE):
        yield f"step_time_s.p50 is {p50:.4g} s, that of the ranks {statistics.median(times.step_p50):.4g} s"
    if metrics.flops_per_token and metrics.tflops_per_rank is not None:
        tflops = metrics.flops_per_token * metrics.tokens_per_s_per_rank / 1e12
        made_of = "flops_per_token times tokens/s per rank"
        yield from _differ("tflops_per_rank", metrics.tflops_per_rank, tflops, made_of)
    if metrics.mfu is not None and metrics.tflops_per_rank is not None:
        share = metrics.tflops_per_rank / metrics.peak_tflops if metrics.peak_tflops else math.inf
        yield from _differ("mfu", metrics.mfu, share, "tflops_per_rank over peak_tflops")
    own = times.fetch, times.forward, times.optimizer
    if metrics.world_size > 1 and metrics.straggler is None and any(map(any, own)):
        yield "straggler is null, and the ranks' own work was timed"


def _differ(name: str, recorded: float, made: float, of: str) -> Iterator[str]:
    if not math.isclose(recorded, made, rel_tol=CLOSE):
        yield f"{name} is {recorded:.6g}, {of} gives {made:.6g}"


def _clock(metrics: TrainMetrics) -> Iterator[str]:
    """Yield a sentence if the steps of the window did not take as long as the host's clock saw."""
    ends, count, timed = metrics.steps_unix_s, len(metrics.steps_s), sum(metrics.steps_s)
    if len(ends) <= count:
        return
    seen = ends[-1] - ends[-1 - count]
    most = LONGER * seen + CLOCK_S + AHEAD * timed / count
    if not SHORTER * seen - CLOCK_S <= timed <= most:
        yield f"steps_s makes {timed:.4g} s, the ends of the same steps by the host's clock {seen:.4g} s"
