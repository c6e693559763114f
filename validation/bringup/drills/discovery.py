"""Faults of the discovery phases. Data only."""

from __future__ import annotations

from bringup.drills.drill import Drill
from bringup.records import Outcome

DISCOVERY: tuple[Drill, ...] = (
    Drill(id="node-off", fault="one node is powered off, and Slurm has noticed", phase="discovery",
          inject=(("off", "n1"),), undo=(("boot", "n1"),), wait_for=("n1", "down*"),
          gate="discovery.node.state", subject="n1", outcome=Outcome.FAIL, says="NOT_RESPONDING", silent=("n0",)),
    Drill(id="node-off-unnoticed", fault="one node is powered off, and Slurm still calls it idle", phase="discovery",
          inject=(("off", "n1"),), undo=(("boot", "n1"),),
          gate="discovery.node.answered", subject="n1", outcome=Outcome.FAIL, says="no", silent=("n0",)),
    Drill(id="gpu-missing", fault="one node has a GPU fewer than configured", phase="discovery",
          inject=(("on", "n1", "rm", "/dev/nvidia1"),), undo=(("on", "n1", "mknod", "-m", "666", "/dev/nvidia1", "c", "195", "1"),),
          gate="discovery.gpu.count", subject="n1", outcome=Outcome.FAIL, says="1", silent=("n0",)),
)
