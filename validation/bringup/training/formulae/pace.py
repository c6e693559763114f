"""How fast ranks train that wait for one another: the steady window of all of them, and whose own work is slow."""

import itertools
import math
import statistics
from dataclasses import dataclass

from bringup.training.records import RankTimes, StepTime, Straggler

PARTS = ("fetch", "forward", "optimizer")  # of a rank's own work, in which it waits for no other


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
    """Return the nearest rank: the smallest value that 95 % of the sorted values do not exceed."""
    return ordered[math.ceil(0.95 * len(ordered)) - 1]


def rank_times(ranks: list[tuple[list[float], dict[str, list[float]]]], warmup_steps: int) -> RankTimes:
    """Return the times of all ranks after warm-up, from the step times and the own times by part of each."""
    steps = [sorted(step_times_s[warmup_steps:]) for step_times_s, _ in ranks]
    own = {part: [statistics.median(parts[part][warmup_steps:]) for _, parts in ranks] for part in PARTS}
    return RankTimes(
        step_p50=[statistics.median(window) for window in steps],
        step_p95=[percentile_95(window) for window in steps],
        step_max=[window[-1] for window in steps],
        **own,
    )


@dataclass(frozen=True)
class Slowdown:
    """Of a rank. part: in which it is slowest against the median, which is `usual_s`."""

    ratio: float | None  # own work over the median; None where no own work was timed
    excess_s: float  # own work beyond the median
    part: str
    part_s: float
    usual_s: float


def slowdowns(times: RankTimes) -> list[Slowdown]:
    """Compare each rank's own work with the lower median of all ranks (of two: with the other rank's)."""
    parts = {part: getattr(times, part) for part in PARTS}
    usual = {part: statistics.median_low(values) for part, values in parts.items()}
    own = [math.fsum(values) for values in zip(*parts.values(), strict=True)]
    median = statistics.median_low(own)
    slow = []
    for rank, mine in enumerate(own):
        excess = {part: values[rank] - usual[part] for part, values in parts.items()}
        part = max(excess, key=excess.__getitem__)
        ratio = mine / median if median > 0 else None
        slow.append(Slowdown(ratio, mine - median, part, parts[part][rank], usual[part]))
    return slow


def straggler(times: RankTimes, nodes: list[str]) -> Straggler | None:
    """Find the rank whose own work takes longest. None with one rank, or when no own work was timed."""
    slow = slowdowns(times)
    if len(slow) < 2 or slow[0].ratio is None:
        return None
    rank = max(range(len(slow)), key=lambda rank: slow[rank].excess_s)
    most = slow[rank]
    return Straggler(rank=rank, node=nodes[rank], slowdown=most.ratio, part=most.part)  # type: ignore[arg-type]  # PARTS
