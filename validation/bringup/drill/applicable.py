"""Whether a drill means something on a cluster that is not the local one."""

from __future__ import annotations

import re

from bringup.plan.catalogue import GATES
from bringup.plan.drill import Drill
from bringup.plan.profile import Profile


def why_not(drill: Drill, profile: Profile, nodes: int, gpus: int) -> str | None:
    """Why the drill would mean nothing on this cluster; None when it would."""
    if drill.where != "anywhere":
        return "it changes the cluster itself: on a local cluster only"
    if nodes < drill.shape.nodes:
        return f"it needs {drill.shape.nodes} nodes, {nodes} can be used"
    if gpus < 2 <= drill.shape.gpus_per_node and _names_a_rank(drill):
        return f"it tells two ranks of one node apart, and the nodes have {gpus} GPU"
    excluded = profile.reason_not_applicable(drill.gate)
    if excluded is not None:
        return f"profile {profile.name}: {drill.gate} is not applicable: {excluded}"
    if GATES[drill.gate].expect == "profile" and drill.gate not in profile.expect:
        return f"profile {profile.name} declares no {drill.gate}"
    if drill.needs_expected is not None:
        gate, pattern = drill.needs_expected
        entry = profile.expect.get(gate)
        if entry is None or not re.search(pattern, str(entry.expected)):
            expected = "nothing" if entry is None else entry.expected
            return f"profile {profile.name} expects {expected} of {gate}, not {pattern}"
    return None


def _names_a_rank(drill: Drill) -> bool:
    return any("{rank" in text for text in (drill.subject, *drill.environment.values()))
