"""How fast this cluster's collectives are: measured by a run, or promised by a profile. Never a default.

Answers are bus bandwidths as nccl-tests defines them (bytes that a rank sends / time, in GB/s), or a text that says
why it is unknown. A run answers for the numbers of nodes that it measured; a profile gives its floor for each number of
nodes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from bringup.kernel.judge import Judged
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.profile import Profile
from bringup.kernel.plan.subjects import scale_name
from bringup.kernel.records import Observation, Verdict
from bringup.readers import curve
from bringup.training.formulae.traffic import Collective, Operation


@dataclass(frozen=True)
class Speed:
    gbps: float  # bus bandwidth, GB/s
    source: str


@dataclass(frozen=True)
class Promised:
    """The floors of a profile: what a healthy cluster reaches at least, so that times become upper bounds."""

    profile: Profile

    def bus(self, operation: Operation, nodes: int, message: float, gpus_per_node: int | None = None) -> Speed | str:
        """Return the speed with this number of GPUs in use on each node; None: all that it has."""
        gate = f"nccl.{operation}.busbw"
        entry = self.profile.expect.get(gate)
        if entry is None or entry.at_least is None:
            return f"profile {self.profile.name} declares no {gate}; measure it and give --from RUN"
        floor = self.profile.limit(gate, nodes, gpus_per_node)
        if not isinstance(floor.value, int | float):
            return f"{floor.why}; measure it and give --from RUN"
        at = f"{f' at {entry.at}' if entry.at else ''} on {scale_name(nodes)} (floor of {self.profile.name})"
        return Speed(floor.value, f"{operation} ≥ {floor.value:g} GB/s{at}, for messages of {_size(message)}")


class Measured:
    """The curves of runs of nccl_scaling: of each size and number of nodes the slowest measurement."""

    def __init__(self, judged: Sequence[tuple[str, Sequence[Observation], Sequence[Verdict]]]) -> None:
        """Take (name of the run, its observations, its verdicts) of each run."""
        self.names = ", ".join(name for name, _, _ in judged)
        self.measured: dict[tuple[str, str], list[tuple[int, float, str]]] = {}
        self.distrusted: dict[tuple[str, str], str] = {}
        for run, observations, verdicts in judged:
            bad = {(verdict.gate, verdict.subject) for verdict in verdicts if not verdict.outcome.is_good}
            for scale, by_name in curve.curves(list(observations)).items():
                for name, points in by_name.items():
                    gate = GATES.get(f"nccl.{name}.busbw")
                    unmet = [need for need in (gate.needs if gate else ()) if (need, scale) in bad]
                    if unmet:  # a bandwidth among other ranks than planned is none of this cluster
                        self.distrusted[name, scale] = f"{', '.join(unmet)} did not pass on {scale} in {run}"
                        continue
                    self.measured.setdefault((name, scale), []).extend(
                        (size, speed, f"at {observation.quantity.partition('@')[2]} on {scale} ({run})")
                        for size, speed, observation in points
                    )

    def bus(self, operation: Operation, nodes: int, message: float, gpus_per_node: int | None = None) -> Speed | str:
        """Return the speed at this size of message, with the GPUs that the runs used: time grows linearly between the
        measured sizes next to it (latency + size / rate; Hockney 1994). A smaller message than measured takes as long
        as the smallest that was, a larger one has the rate of the largest."""
        scale = scale_name(nodes)
        slowest: dict[int, tuple[int, float, str]] = {}
        for size, speed, where in self.measured.get((operation, scale), []):
            if speed > 0 and (size not in slowest or speed < slowest[size][1]):
                slowest[size] = (size, speed, where)
        points = sorted(slowest.values())
        if not points:
            return self.distrusted.get((operation, scale), f"{self.names} measured no {operation} on {scale}")
        below = [point for point in points if point[0] <= message] or points[:1]
        above = [point for point in points if point[0] >= message] or points[-1:]
        low, high = below[-1], above[0]
        if low[0] == high[0]:  # the same point: measured, or at an end of what was
            speed = low[1] * min(1.0, message / low[0])
            return Speed(speed, f"{operation} {low[1]:.4g} GB/s {low[2]}, for messages of {_size(message)}")
        share = (message - low[0]) / (high[0] - low[0])
        speed = message / ((1 - share) * low[0] / low[1] + share * high[0] / high[1])
        between = f"from {low[1]:.4g} {low[2]} and {high[1]:.4g} at {high[2].split()[1]}"
        return Speed(speed, f"{operation} {speed:.4g} GB/s for messages of {_size(message)}, {between}")


def measured(judged: Sequence[Judged]) -> Measured:
    return Measured([(run.folder.name, run.observations, run.verdicts.verdicts) for run in judged])


def _size(message: float) -> str:
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if message >= size:
            return f"{message / size:.3g} {unit}"
    return f"{message:.0f} B"


def seconds(collective: Collective, of: Promised | Measured, nodes: int, gpus_per_node: int) -> tuple[float, str] | str:
    """Return (time of all calls of a step, source) or why it is unknown: bytes that a rank sends / bus bandwidth.

    Replicas talk in rings, one for each shard that a node holds, all at once: each has its part of what leaves a node
    in a ring of all ranks, which is the all_gather's bus bandwidth over the nodes of a ring / rings.
    """
    if collective.over == "replicas":
        rings = min(nodes * gpus_per_node // collective.ranks, gpus_per_node)
        through = collective.ranks * rings // gpus_per_node  # nodes of a ring
        speed = of.bus("all_gather", through, collective.message * rings, gpus_per_node)
        if isinstance(speed, str):
            return speed
        each = f"{rings} GPUs for a replica's ring" if rings == gpus_per_node else f"{rings} rings of replicas"
        return collective.sent / (speed.gbps * 1e9 / rings), f"{speed.source}, / {each}"
    over = {"node": 1, "nodes": collective.ranks // gpus_per_node}.get(collective.over, nodes)
    speed = of.bus(collective.operation, over, collective.message, gpus_per_node)
    return speed if isinstance(speed, str) else (collective.sent / (speed.gbps * 1e9), speed.source)
