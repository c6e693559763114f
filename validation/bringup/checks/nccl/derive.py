"""Observations derived from the measurements of collectives, under the ids of the gates that judge them."""

from __future__ import annotations

from collections.abc import Iterable

from bringup.checks import sampled
from bringup.checks.nccl import ends, pairs
from bringup.evidence import clock
from bringup.evidence.curve import Point, curves
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan.phases import PHASES
from bringup.plan.subjects import nodes_of_scale, rank_subjects
from bringup.plan.transports import is_recognised, is_tcp
from bringup.records import Observation, Run


def derive(observed: Seen, run: Run) -> Parsed:
    derived = Parsed()
    _step(derived, observed, run)
    _latency(derived, observed)
    _bypassed(derived, observed)
    _shapes(derived, observed)
    _clocks_of_samples(derived, observed)
    if not PHASES[run.phase].is_training:
        derived.add(sampled.slowdowns(observed, run, "nccl.monitor.slowdown"))
    derived.add(ends.derive(observed, run))
    derived.add(pairs.derive(observed.under("pair.", "nccl."), run.nodes))
    return derived


def _step(derived: Parsed, observed: Seen, run: Run) -> None:
    """nccl.step per scale: the exit code of its step. Victims have the same code, so the remark names the task that
    srun reported first. If ranks hung or did not come, it names those, because srun then reports the ranks that
    waited."""
    for code in observed.of("nccl.step.exit_code"):
        missed = next((rank.why for rank in observed.of("nccl.rank.late", code.step)), None)
        hang = ends.hang_of(observed, rank_subjects(_nodes_of(code.subject, run), run.ranks_per_node), code.step)
        hung = hang.words() if hang is not None and hang.culprits else None
        why = code.why if code.value == 0 else missed or hung or _first(observed.of("slurm.launch.error", code.step))
        derived.saw("nccl.step", code.subject, code.value, "count", code.evidence, why)


def _nodes_of(scale: str, run: Run) -> list[str]:
    return run.nodes[: nodes_of_scale(scale) or 0]


def _first(errors: list[Observation]) -> str | None:
    if not errors:
        return None
    first = errors[0]
    return f"first {first.subject}{f': {first.why}' if first.why else ''}: {first.value}"


def _latency(derived: Parsed, observed: Seen) -> None:
    """nccl.all_reduce.latency@SIZE: the time of an all_reduce over several nodes or GPUs, but not over a single
    pair."""
    for quantity, observations in observed.starting_with("nccl.all_reduce.time@").items():
        size = quantity.partition("@")[2]
        for time in observations:
            if "--" not in time.subject:
                derived.saw(
                    f"nccl.all_reduce.latency@{size}", time.subject, time.value, time.unit, time.evidence, time.why
                )


def _bypassed(derived: Parsed, observed: Seen) -> None:
    """nccl.rdma.bypassed per scale: sockets were used between hosts, although one of them has an active RDMA device."""
    transports = {transport.subject: transport for transport in observed.of("nccl.transport")}
    for active in observed.of("nccl.rdma.active"):
        if not isinstance(active.value, list):
            continue
        used = transports.get(active.subject)
        if used is None or used.value is None:
            why = "which network was used is not known" + (f": {used.why}" if used is not None else "")
            derived.saw("nccl.rdma.bypassed", active.subject, None, "flag", active.evidence, why)
        else:
            bypassed = bool(active.value) and is_tcp(str(used.value))
            remark = f"{'; '.join(active.value) or 'no RDMA device is active'}; used {used.why or used.value}"
            if active.value and not bypassed and not is_recognised(str(used.value)):
                why = f"whether {used.value} is TCP is not known; {remark}"
                derived.saw("nccl.rdma.bypassed", active.subject, None, "flag", active.evidence, why)
                continue
            derived.saw("nccl.rdma.bypassed", active.subject, bypassed, "flag", active.evidence, remark)


Ratio = tuple[float, str, Point]  # of a point of the curve of this collective


def _shapes(derived: Parsed, observed: Seen) -> None:
    """nccl.curve.dip: the lowest ratio of a size to the slower one of its neighbour sizes. nccl.curve.plateau: the
    ratio of the largest size to the fastest. The worst collective counts, and is named."""
    for scale, by_name in curves(observed.under("nccl.")).items():
        _worst(
            derived,
            "nccl.curve.dip",
            scale,
            [ratio for name, points in by_name.items() for ratio in _dips(name, points)],
        )
        _worst(
            derived,
            "nccl.curve.plateau",
            scale,
            [ratio for name, points in by_name.items() for ratio in _end(name, points)],
        )


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


def _clocks_of_samples(derived: Parsed, observed: Seen) -> None:
    """nccl.monitor.clock, s, per sampled node: how exact its samples are on the common time axis."""
    measured = clock.shifts([*observed.of(clock.BEHIND), *observed.of(clock.UNCERTAINTY)])
    unknown = {behind.subject: behind.why for behind in observed.of(clock.BEHIND) if behind.value is None}
    for coverage in observed.of("nccl.monitor.coverage"):
        node, shift = coverage.subject, measured.get(coverage.subject)
        if shift is None:
            why = (
                "its clock was not compared, and its samples stand at its own time: "
                f"{unknown.get(node, 'nothing arrived')}"
            )
            derived.saw("nccl.monitor.clock", node, None, "s", coverage.evidence, why)
        else:
            words = f"{shift}; its samples are moved by {shift.moved}"
            derived.saw("nccl.monitor.clock", node, shift.uncertainty, "s", coverage.evidence, words)
