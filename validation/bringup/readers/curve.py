"""The shape of the curve of bus bandwidth over size, per collective and scale. Never an average over sizes."""

from collections import defaultdict

from bringup.kernel.plan.expectation import size_bytes
from bringup.kernel.plan.subjects import ONE_GPU
from bringup.kernel.records import Observation

Point = tuple[int, float, Observation]  # bytes, GB/s, the observation itself


def curves(observations: list[Observation]) -> dict[str, dict[str, list[Point]]]:
    """Return scale -> collective -> points, ordered by size. If a size was measured several times, the slowest counts.
    A single GPU is left out: nccl-tests prints 0.00 for it, or for broadcast the speed of a copy."""
    known: dict[str, dict[str, dict[int, Point]]] = defaultdict(lambda: defaultdict(dict))
    for observation in observations:
        if not observation.quantity.startswith("nccl."):
            continue
        name, _, at = observation.quantity.partition("@")
        if not (at and name.endswith(".busbw")) or (size := size_bytes(at)) is None:
            continue
        if name.startswith("nccl.variant."):  # NCCL was restricted to one path: not part of the usual curve
            continue
        if observation.subject == ONE_GPU or "--" in observation.subject:  # "--": links of the pairwise phase
            continue
        if isinstance(observation.value, int | float):
            points = known[observation.subject][name.removeprefix("nccl.").removesuffix(".busbw")]
            if size not in points or observation.value < points[size][1]:
                points[size] = (size, float(observation.value), observation)
    return {
        scale: {name: sorted(points.values()) for name, points in by_name.items()} for scale, by_name in known.items()
    }
