"""The clocks of the nodes against each other, from what probes/clock.py measured.

Discovery judges the distance; monitoring puts the samples of all nodes on one axis with it.
"""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from bringup.kernel.facts.parser_result import Seen, numbers
from bringup.kernel.records import Observation

BEHIND, UNCERTAINTY = "discovery.clock.behind_reference", "discovery.clock.uncertainty"


@dataclass(frozen=True)
class Shift:
    """Seconds to add to a node's time to get the fleet's time, which is the median of all clocks."""

    seconds: float
    uncertainty: float
    nodes: int  # that the median was taken of

    @property
    def moved(self) -> str:
        return f"{round(self.seconds, 3) + 0.0:+.3f} s"  # + 0.0: no "-0.000"

    def __str__(self) -> str:
        direction = "behind" if self.seconds >= 0 else "ahead of"
        return f"{abs(self.seconds):.6f} ± {self.uncertainty:.6f} s {direction} the median of {self.nodes} nodes"


def shifts(observations: Iterable[Observation]) -> dict[str, Shift]:
    """Return node -> shift, for nodes whose clock was measured."""
    observed = Seen(observations)
    behind, error = numbers(observed.of(BEHIND)), numbers(observed.of(UNCERTAINTY))
    # the reference's own clock may be wrong
    median = statistics.median(behind.values()) if behind else 0.0
    known = [node for node in behind if error.get(node, -1.0) >= 0]
    return {node: Shift(behind[node] - median, error[node], len(behind)) for node in known}
