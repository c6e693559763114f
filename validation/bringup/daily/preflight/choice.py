"""The best nodes of a job. Pure: from what was measured, without Slurm."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median

from bringup.derive import pairs
from bringup.evidence.parsed import is_number
from bringup.judge import Judged
from bringup.records import Outcome
from bringup.records.grouped import grouped

STEP = 0.1
"""Of a speed: nodes within a tenth of the best are equally fast, and Slurm's order decides. Healthy nodes differ by
less, and an order by noise would scatter the ranks over the switches."""
_LOAD = "sweep.gpu.load.tflops"


def speeds(judged: Iterable[Judged]) -> dict[str, float]:
    """Return node -> TFLOP/s of its slowest device under load."""
    seen = (each for run in judged for each in run.observations if each.quantity == _LOAD)
    of_node = grouped((each.subject.partition("/")[0], each.value) for each in seen if is_number(each.value))
    return {node: float(min(values)) for node, values in of_node.items()}


def bandwidths(judged: Iterable[Judged]) -> dict[str, float]:
    """Return node -> GB/s with its middle partner, both directions."""
    measured = [each for run in judged for each in pairs.measured(run.observations)[0].items()]
    of_node = grouped((node, speed.best) for direction, speed in measured for node in direction)
    return {node: median(values) for node, values in of_node.items()}


def warned(judged: Iterable[Judged]) -> dict[str, int]:
    """Count gates of its own that warn, by node."""
    warnings = (each for run in judged for each in run.verdicts.verdicts if each.outcome is Outcome.WARN)
    return Counter(each.subject.partition("/")[0] for each in warnings)


def ranked(nodes: Sequence[str], judged: Sequence[Judged]) -> list[str]:
    """Sort, best first: by speed under load, bandwidth, warnings, then as in `nodes`, which is Slurm's order."""
    load, network, warnings = speeds(judged), bandwidths(judged), warned(judged)
    return sorted(nodes, key=lambda node: (_below(load, node), _below(network, node), warnings.get(node, 0)))


def _below(values: Mapping[str, float], node: str) -> int:
    """By how many steps a node is slower than the best; 0 where it is not known."""
    best = max(values.values(), default=0.0)
    return int((1 - values[node] / best) / STEP) if best > 0 and node in values else 0


def choose(candidates: Sequence[str], count: int, links: Iterable[tuple[str, str]]) -> list[str] | None:
    """Choose the first `count` candidates of which no two share one of these bad links; None: there are not so many."""
    bad = {frozenset(link) for link in links}
    chosen: list[str] = []
    for node in candidates:
        if len(chosen) < count and not any(frozenset((node, other)) in bad for other in chosen):
            chosen.append(node)
    return chosen if len(chosen) == count else None
