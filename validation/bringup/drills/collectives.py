"""Faults of the collectives phases. Data only."""

from __future__ import annotations

from bringup.drills.drill import Drill
from bringup.records import Outcome

COLLECTIVES: tuple[Drill, ...] = (
    Drill(id="slow-link", fault="one node's link carries 100 Mbit/s", phase="nccl_monitoring",
          inject=(("on", "n1", "tc", "qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "100mbit", "burst", "64kb",
                   "latency", "50ms"),),
          undo=(("on", "n1", "tc", "qdisc", "del", "dev", "eth0", "root"),),
          gate="nccl.all_reduce.busbw", subject="2-nodes", outcome=Outcome.FAIL, says="GB/s"),
)
