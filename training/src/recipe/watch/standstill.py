"""When a rank itself stood still in the middle of training. In a synchronous training all the others wait for it.

Two kinds of evidence: its heartbeat (probes/pulse.py), and its own work in a step, in which it waits for no other
(meter.py). Only steps after the warm-up count. A checkpoint lies between two steps.
"""

from __future__ import annotations

import statistics

import pulse
from bringup.formulae.pace import PARTS
from bringup.records import Standstill

Spans = list[tuple[float, float]]  # begin and end of each step, on the clock of the host
LEAST_RATIO = 2  # own work that takes less than twice its median is uneven, and no standstill


def of_rank(gaps: list[pulse.Gap], spans: Spans, own: dict[str, list[float]], first: int, warmup: int) -> Standstill:
    """Find the longest. `first`: the number of the first step of `spans`; `own`: seconds by part, then step."""
    seconds, index, cpu_s = pulse.longest(gaps, spans[warmup:])
    standstill = Standstill(seconds=seconds)
    if index is not None:
        standstill = Standstill(seconds=seconds, step=first + warmup + index, part="process", cpu_s=cpu_s)
    for part in PARTS:
        values = own[part][warmup:]
        longest, usual = max(values), statistics.median(values)
        if longest > LEAST_RATIO * usual and longest - usual > max(pulse.LEAST_S, standstill.seconds):
            step = first + warmup + values.index(longest)
            standstill = Standstill(seconds=longest - usual, step=step, part=part)  # type: ignore[arg-type]  # its literals
    return standstill
