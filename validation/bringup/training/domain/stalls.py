"""A training that stands still for a while and goes on: how long, in which step, and which rank it was. Pure.

All ranks of a synchronous training are late together. The one that stood still is told by its heartbeat and its own
work (recipe/meter.py). The others waited for it and pass. Where no rank stood still, none is named.
"""

import statistics

from bringup.kernel.characters import many
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan.subjects import JOB
from bringup.kernel.results import METRICS
from bringup.training.records import Standstill, TrainMetrics

LEAST_RATIO = 2  # a step that takes less than twice the median is uneven, and no stall
FEWEST_STEPS = 3  # of two, none is usual


def of_metrics(metrics: TrainMetrics) -> Parsed:
    """Derive train.stall: seconds that the longest step after the warm-up took beyond the median step.
    train.rank.stall: the longest time that the rank itself stood still in one."""
    parsed = Parsed()
    for rank, (host, still) in enumerate(zip(metrics.observed.hosts, metrics.standstills, strict=True)):
        where, seconds = f"{METRICS}:standstills", round(still.seconds, 2)
        parsed.saw("train.rank.stall", f"{host}/rank{rank}", seconds, "s", where, _in_words(still))
    where, steps = f"{METRICS}:steps_s", metrics.steps_s
    if len(steps) < FEWEST_STEPS:
        why = f"{many(len(steps), 'step')} are left after the warm-up: none of them is usual"
        parsed.saw("train.stall", JOB, None, "s", where, why)
        return parsed
    longest, usual = max(steps), statistics.median(steps)
    number = metrics.steps_done - len(steps) + steps.index(longest) + 1
    excess = longest - usual if longest > LEAST_RATIO * usual else 0.0
    remark = f"step {number} took {longest:.4g} s, the median is {usual:.4g} s"
    if excess > 0:
        remark += f"; {_who(metrics, excess)}"
    parsed.saw("train.stall", JOB, round(excess, 2), "s", where, remark)
    return parsed


def _who(metrics: TrainMetrics, excess: float) -> str:
    """Name the rank whose own standstill explains most of it."""
    ranks = metrics.standstills
    rank = max(range(len(ranks)), key=lambda number: ranks[number].seconds)
    if ranks[rank].seconds < excess / 2:
        return "no rank stood still in what it does itself"
    return f"{metrics.observed.hosts[rank]}/rank{rank} stood still for {ranks[rank].seconds:.4g} s"


def _in_words(standstill: Standstill) -> str | None:
    if standstill.part is None:
        return None
    if standstill.part != "process":
        return f"in step {standstill.step}: {standstill.part} took so much longer than its median"
    idle = standstill.cpu_s is not None and standstill.cpu_s < standstill.seconds / 2
    how = "it was stopped, or got no core" if idle else "one call kept the interpreter for itself"
    return f"in step {standstill.step}: the process stood still and used {standstill.cpu_s or 0:.2g} s of CPU: {how}"
