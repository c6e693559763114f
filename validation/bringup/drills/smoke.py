"""Faults of the smoke phases. Data only."""

from __future__ import annotations

from bringup.drills.drill import Drill
from bringup.records import Outcome

SMOKE: tuple[Drill, ...] = (
    Drill(id="path-not-shared", fault="the results folder is not shared on one node", phase="smoke",
          inject=(("on", "n1", "mount", "-t", "tmpfs", "tmpfs", "{results}"),), undo=(("on", "n1", "umount", "{results}"),),
          gate="smoke.fs.reads_submit_host", subject="n1", outcome=Outcome.FAIL, says="no", silent=("n0",)),
)
