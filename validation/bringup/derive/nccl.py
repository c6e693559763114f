"""Observations derived from the measurements of collectives, under the ids of the gates that judge them."""

from __future__ import annotations

from collections.abc import Iterable

from bringup.derive import collective_ends as ends
from bringup.derive import pair_topology, pairs
from bringup.evidence import clock
from bringup.evidence.curve import Point, curves
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan.subjects import nodes_of_scale, rank_subjects
from bringup.plan.transports import is_recognised, is_tcp
from bringup.records import Observation, Run

_NO_FAULT = {  # why Slurm ended a step -> what to do
    "preemption": "run it again, in a partition or QOS whose jobs are not preempted",
    "time limit": "run it again, with a longer time limit",
    "job requeue": "run it again",
}


def ranks_ended(derived: Parsed, observed: Seen, run: Run) -> None:
    derived.add(ends.derive(observed, run))


def links(derived: Parsed, observed: Seen, run: Run) -> None:
    derived.add(ends.derive(observed, run))
    derived.add(pairs.derive(observed.under("pair.", "nccl."), run.nodes))
    derived.add(pair_topology.derive(observed))
    derived.add(pairs.sent_again(observed.of(pairs.SENT_AGAIN)))


def step(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive nccl.step per scale: the exit code of its step. Victims have the same code, so the remark names the task
    that srun reported first. If ranks hung or did not come, it names those, because srun then reports the ranks that
    waited."""
    for code in observed.of("nccl.step.exit_code"):
        missed = next((rank.why for rank in observed.of("nccl.rank.late", code.step)), None)
        nodes = run.nodes[: nodes_of_scale(code.subject) or 0]
        hang = ends.hang_of(observed, rank_subjects(nodes, run.ranks_per_node), code.step)
        hung = hang.words() if hang is not None and hang.culprits else None
        why = code.why if code.value == 0 else missed or hung or _first(observed.of("slurm.launch.error", code.step))
        value, ended = code.value, next(iter(observed.of("slurm.launch.ended", code.step)), None)
        if value != 0 and ended is not None and ended.value in _NO_FAULT and not (missed or hung):
            value, why = None, f"Slurm ended the step: {ended.value} ({ended.evidence}); {_NO_FAULT[str(ended.value)]}"
        derived.saw("nccl.step", code.subject, value, "count", code.evidence, why)


def _first(errors: list[Observation]) -> str | None:
    if not errors:
        return None
    first = errors[0]
    return f"first {first.subject}{f': {first.why}' if first.why else ''}: {first.value}"


def bypassed(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive nccl.rdma.bypassed per scale: sockets were used between hosts, although one has an active RDMA device."""
    transports = {transport.subject: transport for transport in observed.of("nccl.transport")}
    for active in observed.of("nccl.rdma.active"):
        if not isinstance(active.value, list):
            continue
        used, was_bypassed = transports.get(active.subject), None
        if used is None or used.value is None:
            why = "which network was used is not known" + (f": {used.why}" if used is not None else "")
        else:
            why = f"{'; '.join(active.value) or 'no RDMA device is active'}; used {used.why or used.value}"
            if not active.value or is_tcp(str(used.value)) or is_recognised(str(used.value)):
                was_bypassed = bool(active.value) and is_tcp(str(used.value))
            else:
                why = f"whether {used.value} is TCP is not known; {why}"
        derived.saw("nccl.rdma.bypassed", active.subject, was_bypassed, "flag", active.evidence, why)


Ratio = tuple[float, str, Point]  # of a point of the curve of this collective


def shapes(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive nccl.curve.dip: the lowest ratio of a size to the slower one of its neighbour sizes. nccl.curve.plateau:
    the ratio of the largest size to the fastest. The worst collective counts, and is named."""
    for scale, by_name in curves(observed.under("nccl.")).items():
        for gate, ratios in (("nccl.curve.dip", _dips), ("nccl.curve.plateau", _end)):
            _worst(derived, gate, scale, [ratio for name, points in by_name.items() for ratio in ratios(name, points)])


def _dips(name: str, points: list[Point]) -> Iterable[Ratio]:
    for before, point, after in zip(points, points[1:], points[2:], strict=False):
        slower = min(before[1], after[1])
        if slower > 0:
            yield min(1.0, point[1] / slower), name, point


def _end(name: str, points: list[Point]) -> Iterable[Ratio]:
    best = max(speed for _, speed, _ in points)
    if len(points) > 1 and best > 0:
        yield points[-1][1] / best, name, points[-1]


def _worst(derived: Parsed, quantity: str, scale: str, ratios: list[Ratio]) -> None:
    if not ratios:
        derived.saw(quantity, scale, None, "ratio", "raw/", "too few sizes were measured to see a shape")
        return
    ratio, name, (_, speed, measured) = min(ratios, key=lambda item: item[0])
    at = measured.quantity.partition("@")[2]
    derived.saw(quantity, scale, round(ratio, 3), "ratio", measured.evidence, f"{name} at {at}: {speed:.4g} GB/s")


def clocks_of_samples(derived: Parsed, observed: Seen, run: Run) -> None:
    """Derive nccl.monitor.clock, s, per sampled node: how exact its samples are on the common time axis."""
    measured = clock.shifts([*observed.of(clock.BEHIND), *observed.of(clock.UNCERTAINTY)])
    unknown = {behind.subject: behind.why for behind in observed.of(clock.BEHIND) if behind.value is None}
    for coverage in observed.of("nccl.monitor.coverage"):
        node, shift = coverage.subject, measured.get(coverage.subject)
        if shift is None:
            why = "its clock was not compared, and its samples stand at its own time"
            why = f"{why}: {unknown.get(node, 'nothing arrived')}"
        else:
            why = f"{shift}; its samples are moved by {shift.moved}"
        value = shift.uncertainty if shift else None
        derived.saw("nccl.monitor.clock", node, value, "s", coverage.evidence, why)
