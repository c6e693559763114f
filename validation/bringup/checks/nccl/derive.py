"""What follows from what collectives measured, under the ids of the gates that judge it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from bringup.checks.nccl import ends, pairs
from bringup.evidence import clock
from bringup.evidence.curve import Point, curves
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan.subjects import nodes_of_scale, rank_subjects
from bringup.plan.transports import is_recognised, is_tcp
from bringup.records import Observation, Run


def derive(seen: Seen, run: Run) -> Parsed:
    found = Parsed()
    _step(found, seen, run)
    _latency(found, seen)
    _bypassed(found, seen)
    _shapes(found, seen)
    _clocks_of_samples(found, seen)
    _slowdowns(found, seen, run)
    found.add(ends.derive(seen, run))
    found.add(pairs.derive(seen.under("pair.", "nccl."), run.nodes))
    return found


def _step(found: Parsed, seen: Seen, run: Run) -> None:
    """nccl.step per scale: the exit code of its step. The code is that of the victims, too, so the task that srun named
    first stands beside it; or the ranks that did not come or that hung, for srun names those who waited for them."""
    errors, late = seen.of("slurm.launch.error"), seen.of("nccl.rank.late")
    for code in seen.of("nccl.step.exit_code"):
        files = code.evidence.removesuffix(".rc")
        missed = next((rank.why for rank in late if rank.evidence.startswith(f"{files}.jsonl:")), None)
        hang = ends.hang_of(seen, rank_subjects(_nodes_of(code.subject, run), run.ranks_per_node), files)
        hung = hang.words() if hang is not None and hang.culprits else None
        why = code.why if code.value == 0 else missed or hung or _first_of(errors, f"{files}.err:")
        found.saw("nccl.step", code.subject, code.value, "count", code.evidence, why)


def _nodes_of(scale: str, run: Run) -> list[str]:
    return run.nodes[: nodes_of_scale(scale) or 0]


def _first_of(errors: Iterable[Observation], file: str) -> str | None:
    first = next((error for error in errors if error.evidence.startswith(file)), None)
    if first is None:
        return None
    return f"first {first.subject}{f': {first.why}' if first.why else ''}: {first.value}"


def _latency(found: Parsed, seen: Seen) -> None:
    """nccl.all_reduce.latency@SIZE: the time of an all_reduce, over several nodes or GPUs (not that of a pair of
    nodes)."""
    for quantity, observations in seen.starting_with("nccl.all_reduce.time@").items():
        size = quantity.partition("@")[2]
        for time in observations:
            if "--" not in time.subject:
                found.saw(
                    f"nccl.all_reduce.latency@{size}", time.subject, time.value, time.unit, time.evidence, time.why
                )


def _bypassed(found: Parsed, seen: Seen) -> None:
    """nccl.rdma.bypassed per scale: sockets were used between hosts of which one has an active RDMA device."""
    transports = {transport.subject: transport for transport in seen.of("nccl.transport")}
    for active in seen.of("nccl.rdma.active"):
        if not isinstance(active.value, list):
            continue
        used = transports.get(active.subject)
        if used is None or used.value is None:
            why = "which network was used is not known" + (f": {used.why}" if used is not None else "")
            found.saw("nccl.rdma.bypassed", active.subject, None, "flag", active.evidence, why)
        else:
            bypassed = bool(active.value) and is_tcp(str(used.value))
            remark = f"{'; '.join(active.value) or 'no RDMA device is active'}; used {used.why or used.value}"
            if active.value and not bypassed and not is_recognised(str(used.value)):
                why = f"whether {used.value} is TCP is not known; {remark}"
                found.saw("nccl.rdma.bypassed", active.subject, None, "flag", active.evidence, why)
                continue
            found.saw("nccl.rdma.bypassed", active.subject, bypassed, "flag", active.evidence, remark)


Ratio = tuple[float, str, Point]  # of a point of the curve of this collective


def _shapes(found: Parsed, seen: Seen) -> None:
    """nccl.curve.dip: the least ratio of a size to the slower of its neighbours. nccl.curve.plateau: of the largest
    size to the fastest. Of all collectives the worst, by name."""
    for scale, by_name in curves(seen.under("nccl.")).items():
        _worst(
            found, "nccl.curve.dip", scale, [ratio for name, points in by_name.items() for ratio in _dips(name, points)]
        )
        _worst(
            found,
            "nccl.curve.plateau",
            scale,
            [ratio for name, points in by_name.items() for ratio in _end(name, points)],
        )


def _dips(name: str, points: list[Point]) -> Iterable[Ratio]:
    for before, here, after in zip(points, points[1:], points[2:], strict=False):
        slower = min(before[1], after[1])
        if slower > 0:
            yield min(1.0, here[1] / slower), name, here


def _end(name: str, points: list[Point]) -> Iterable[Ratio]:
    best = max(speed for _, speed, _ in points)
    if len(points) > 1 and best > 0:
        yield points[-1][1] / best, name, points[-1]


def _worst(found: Parsed, quantity: str, scale: str, ratios: list[Ratio]) -> None:
    if not ratios:
        found.saw(quantity, scale, None, "ratio", "raw/", "too few sizes were measured to see a shape")
        return
    ratio, name, (_, speed, measured) = min(ratios, key=lambda item: item[0])
    at = measured.quantity.partition("@")[2]
    found.saw(quantity, scale, round(ratio, 3), "ratio", measured.evidence, f"{name} at {at}: {speed:.4g} GB/s")


def _slowdowns(found: Parsed, seen: Seen, run: Run) -> None:
    """nccl.monitor.slowdown per node: what its GPUs' hardware did to protect itself, in all samples. One that slowed
    down is enough; that none did is known only of all GPUs."""
    of_node: dict[str, list[Observation]] = defaultdict(list)
    for gpu in seen.of("monitor.gpu.slowdown"):
        of_node[gpu.subject.partition("/")[0]].append(gpu)
    for node, gpus in of_node.items():
        slowed = [gpu for gpu in gpus if gpu.value not in (None, "none")]
        silent = next((gpu for gpu in gpus if gpu.value is None), None)
        where = gpus[0].evidence
        if slowed:
            kinds = sorted({kind for gpu in slowed for kind in str(gpu.value).split(", ")})
            words = "; ".join(f"{gpu.subject.partition('/')[2]} {gpu.why}" for gpu in slowed)
            found.saw("nccl.monitor.slowdown", node, ", ".join(kinds), "text", where, words)
        elif silent is not None:
            found.saw("nccl.monitor.slowdown", node, None, "text", where, f"{silent.subject}: {silent.why}")
        elif len(gpus) < run.gpus_per_node:
            why = f"{len(gpus)} of {run.gpus_per_node} GPUs were sampled"
            found.saw("nccl.monitor.slowdown", node, None, "text", where, why)
        else:
            found.saw("nccl.monitor.slowdown", node, "none", "text", where, f"of {len(gpus)} GPUs")


def _clocks_of_samples(found: Parsed, seen: Seen) -> None:
    """nccl.monitor.clock, s, of every node that was sampled: how well its samples stand on the time axis of all
    nodes."""
    measured = clock.shifts([*seen.of(clock.BEHIND), *seen.of(clock.UNCERTAINTY)])
    unknown = {behind.subject: behind.why for behind in seen.of(clock.BEHIND) if behind.value is None}
    for sampled in seen.of("nccl.monitor.coverage"):
        node, shift = sampled.subject, measured.get(sampled.subject)
        if shift is None:
            why = (
                "its clock was not compared, and its samples stand at its own time: "
                f"{unknown.get(node, 'nothing arrived')}"
            )
            found.saw("nccl.monitor.clock", node, None, "s", sampled.evidence, why)
        else:
            words = f"{shift}; its samples are moved by {shift.moved}"
            found.saw("nccl.monitor.clock", node, shift.uncertainty, "s", sampled.evidence, words)
