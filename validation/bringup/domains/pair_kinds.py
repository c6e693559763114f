"""What is usual for a pair of nodes: what other pairs of its kind reach.

Pairs under one leaf switch (in one block, in one NVLink cluster) may be faster by design than pairs that leave it, so
no node and no link is accused by pairs of another kind. Where nobody says where the nodes are, and distant pairs are
slower as a whole, a slow pair may be a distant one: then what these reach is usual for all, and a node is judged by its
fastest partner.
"""

from collections.abc import Iterable, Mapping
from statistics import median, median_high

from bringup.domains.localise import Distance
from bringup.kernel.plan.rounds import Pair
from bringup.kernel.records import Observation, grouped
from bringup.readers.slurm import SWITCHES

NVLINK_CLUSTER = "load.counter.before.nvlink_cluster"
Places = Mapping[str, tuple[str, ...]]  # node -> the groups that it is in, the smallest first


def places(observations: Iterable[Observation]) -> Places:
    """Read where the nodes are: NVLink cluster, leaf switch or block, switches above it; what is known of them."""
    seen = [each for each in observations if each.quantity in (NVLINK_CLUSTER, SWITCHES) and each.value is not None]
    clusters = {each.node: str(each.value) for each in seen if each.quantity == NVLINK_CLUSTER}
    switches = {each.subject: each.value for each in seen if each.quantity == SWITCHES and isinstance(each.value, list)}
    nodes = {*clusters, *switches}
    nearest = {node: (clusters.get(node, node),) if clusters else () for node in nodes}
    return {node: (*nearest[node], *map(str, switches.get(node, ()))) for node in nodes}


def reference(speeds: Iterable[float]) -> float:
    """Return GB/s of a healthy direction: the median of the faster half, which is healthy even if half of all
    directions are not."""
    ordered = sorted(speeds, reverse=True)
    return median(ordered[: (len(ordered) + 1) // 2]) if ordered else 0.0


class Kinds:
    """Levels of measured directions: 0 in the smallest group of both nodes, and one more for each group that they leave
    together."""

    def __init__(self, speeds: Mapping[Pair, float], places: Places, distance: Distance | None = None) -> None:
        self.levels = {pair: _level(pair, places) for pair in speeds}
        of_levels = grouped((self.levels[pair], speed) for pair, speed in speeds.items())
        known = {level: reference(several) for level, several in of_levels.items()}
        # near pairs reach what distant ones reach, or more
        self.by_level = {level: max(each for other, each in known.items() if other >= level) for level in known}
        self.is_told = len(known) > 1
        self.loss = 0.0 if self.is_told or distance is None else distance.loss

    def usual(self, pair: Pair) -> float:
        """Return GB/s that a healthy direction of its kind has."""
        return self.by_level[self.levels[pair]] * (1 - self.loss)

    def middle(self, shares: Iterable[tuple[float, Pair]]) -> tuple[float, Pair]:
        """Return the share by which a node is judged: that of its middle partner. The higher median counts: of two
        partners, one may be the bad one."""
        return max(shares) if self.loss else median_high(shares)

    def near(self) -> list[Pair]:
        """Return the directions of the nearest kind."""
        return [pair for pair, level in self.levels.items() if level == min(self.by_level)]


def _level(pair: Pair, places: Places) -> int:
    groups = [places.get(node, ()) for node in pair]
    alike = [mine == other for mine, other in zip(*groups, strict=False)]
    return alike.index(True) if True in alike else len(alike) if places else 0
