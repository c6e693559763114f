"""The catalogue of drills."""

from __future__ import annotations

from bringup.drills.collectives import COLLECTIVES
from bringup.drills.discovery import DISCOVERY
from bringup.drills.drill import Drill
from bringup.drills.evidence import EVIDENCE
from bringup.drills.scheduler import SCHEDULER
from bringup.drills.smoke import SMOKE
from bringup.drills.training import TRAINING

DRILLS: tuple[Drill, ...] = (*DISCOVERY, *SCHEDULER, *SMOKE, *COLLECTIVES, *TRAINING, *EVIDENCE)


def listed() -> str:
    """The catalogue, a line each."""
    width = max(len(drill.id) for drill in DRILLS)
    return "\n".join(
        f"{drill.id:<{width}}  {drill.where:<13}  {drill.phase}: {drill.fault} -> "
        f"{drill.gate} [{drill.subject}] {drill.outcome}"
        for drill in DRILLS
    )
