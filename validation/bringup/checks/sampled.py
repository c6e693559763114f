"""What the sampler beside a run tells of its GPUs. The rooms of collectives and of training judge it alike."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping

from bringup.evidence.parsed import Parsed, Seen, is_number
from bringup.records import Observation, Run


def slowdowns(observed: Seen, run: Run, gate: str) -> Parsed:
    """Under `gate`, per node: what its GPUs' hardware did to protect itself, in all samples. One that slowed down is
    enough; that none did is known only of all GPUs."""
    derived = Parsed()
    for node, gpus in _of_nodes(observed, "monitor.gpu.slowdown").items():
        slowed = [gpu for gpu in gpus if gpu.value not in (None, "none")]
        silent = next((gpu for gpu in gpus if gpu.value is None), None)
        where = gpus[0].evidence
        if slowed:
            kinds = sorted({kind for gpu in slowed for kind in str(gpu.value).split(", ")})
            words = "; ".join(f"{gpu.subject.partition('/')[2]} {gpu.why}" for gpu in slowed)
            derived.saw(gate, node, ", ".join(kinds), "text", where, words)
        elif silent is not None:
            derived.saw(gate, node, None, "text", where, f"{silent.subject}: {silent.why}")
        elif len(gpus) < run.gpus_per_node:
            derived.saw(gate, node, None, "text", where, f"{len(gpus)} of {run.gpus_per_node} GPUs were sampled")
        else:
            derived.saw(gate, node, "none", "text", where, f"of {len(gpus)} GPUs")
    return derived


def clocks(observed: Seen, run: Run, gate: str) -> Parsed:
    """Under `gate`, per node: the clock of its slowest GPU under load, over the median GPU of all nodes. Unknown where
    not every GPU of the node was seen under load."""
    derived = Parsed()
    of_nodes = _of_nodes(observed, "monitor.gpu.clock_median")
    known = [float(gpu.value) for gpus in of_nodes.values() for gpu in gpus if is_number(gpu.value)]
    usual = statistics.median_high(known) if known else 0.0
    for node, gpus in of_nodes.items():
        silent = next((gpu for gpu in gpus if not is_number(gpu.value)), None)
        where = gpus[0].evidence
        if silent is not None or len(gpus) < run.gpus_per_node or usual <= 0:
            missing = f"{len(gpus)} of {run.gpus_per_node} GPUs were sampled"
            derived.saw(
                gate, node, None, "ratio", where, missing if silent is None else f"{silent.subject}: {silent.why}"
            )
            continue
        values: Mapping[str, float] = {gpu.subject: float(gpu.value) for gpu in gpus if is_number(gpu.value)}
        slowest = min(values, key=values.__getitem__)
        words = (
            f"{slowest.partition('/')[2]} {values[slowest]:.0f} MHz, the median of {len(known)} GPUs is {usual:.0f} MHz"
        )
        derived.saw(gate, node, round(values[slowest] / usual, 3), "ratio", where, words)
    return derived


def _of_nodes(observed: Seen, quantity: str) -> dict[str, list[Observation]]:
    of_node: dict[str, list[Observation]] = defaultdict(list)
    for gpu in observed.of(quantity):
        of_node[gpu.subject.partition("/")[0]].append(gpu)
    return of_node
