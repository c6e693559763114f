"""What follows from what collectives measured: shapes of curves, an RDMA device that was bypassed, clocks of samples."""

from __future__ import annotations

from bringup.checks.nccl import pairs
from bringup.evidence import clock
from bringup.evidence.curve import curves
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Run


def derive(seen: Seen, run: Run) -> Parsed:
    found = Parsed()
    _bypassed(found, seen)
    _shapes(found, seen)
    _clocks_of_samples(found, seen)
    found.add(pairs.derive(list(seen.everything()), run.nodes))
    return found


def _bypassed(found: Parsed, seen: Seen) -> None:
    """nccl.rdma.bypassed per scale: sockets were used between hosts of which one has an active RDMA device."""
    transports = {one.subject: one for one in seen.of("nccl.transport")}
    for one in seen.of("nccl.rdma.active"):
        if not isinstance(one.value, list):
            continue
        used = transports.get(one.subject)
        if used is None or used.value is None:
            why = "which network was used is not known" + (f": {used.why}" if used is not None else "")
            found.saw("nccl.rdma.bypassed", one.subject, None, "flag", one.evidence, why)
        else:
            socket = any(word == "sockets" or word.startswith("tcp:") for word in str(used.value).split("+"))
            remark = f"{'; '.join(one.value) or 'no RDMA device is active'}; used {used.why or used.value}"
            found.saw("nccl.rdma.bypassed", one.subject, socket and bool(one.value), "flag", one.evidence, remark)


def _shapes(found: Parsed, seen: Seen) -> None:
    """nccl.curve.dip: the least ratio of a size to the slower of its neighbours. nccl.curve.plateau: of the largest size to the
    fastest. Of all collectives the worst, by name."""
    for scale, by_name in curves(list(seen.everything())).items():
        dips = [
            (min(1.0, here[1] / min(before[1], after[1])), name, here)
            for name, points in by_name.items()
            for before, here, after in zip(points, points[1:], points[2:], strict=False)
            if min(before[1], after[1]) > 0
        ]
        ends = [
            (points[-1][1] / best, name, points[-1])
            for name, points in by_name.items()
            if len(points) > 1 and (best := max(point[1] for point in points)) > 0
        ]
        for quantity, ratios in (("nccl.curve.dip", dips), ("nccl.curve.plateau", ends)):
            if ratios:
                ratio, name, (_, speed, one) = min(ratios, key=lambda item: item[0])
                found.saw(
                    quantity,
                    scale,
                    round(ratio, 3),
                    "ratio",
                    one.evidence,
                    f"{name} at {one.quantity.partition('@')[2]}: {speed:.4g} GB/s",
                )
            else:
                found.saw(quantity, scale, None, "ratio", "raw/", "too few sizes were measured to see a shape")


def _clocks_of_samples(found: Parsed, seen: Seen) -> None:
    """monitor.clock_uncertainty, s, of every node that was sampled: how well its samples stand on the time axis of all nodes."""
    measured = clock.shifts([*seen.of(clock.BEHIND), *seen.of(clock.UNCERTAINTY)])
    why = {one.subject: one.why for one in seen.of(clock.BEHIND) if one.value is None}
    for one in seen.of("monitor.coverage"):
        shift = measured.get(one.subject)
        if shift is None:
            reason = why.get(one.subject, "nothing arrived")
            found.saw(
                "monitor.clock_uncertainty",
                one.subject,
                None,
                "s",
                one.evidence,
                f"its clock was not compared, and its samples stand at its own time: {reason}",
            )
        else:
            found.saw(
                "monitor.clock_uncertainty",
                one.subject,
                shift.uncertainty,
                "s",
                one.evidence,
                f"{shift}; its samples are moved by {shift.moved}",
            )
