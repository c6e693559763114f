"""Faults of single RDMA ports that only traffic over them shows, on simulated nodes. Data only."""

from __future__ import annotations

from bringup.checks.simulated import drill, node
from bringup.plan.drill import Drill

_TCP = (("BRINGUP_PAIR_ENGINE", "tcp"),)  # the pairs themselves, which do not matter here

DRILLS: tuple[Drill, ...] = (
    drill(
        "nic-slow-with-itself",
        "an RDMA port of one node is slow before any cable",
        node("loopback.mlx5_1=126"),
        "fabric.loopback",
        phase="node_sweep",
        between=(0.31, 0.32),
        says="mlx5_1:1: 126 of 400 Gb/s",
    ),
    drill(
        "rail-slow",
        "an RDMA port of one node is slow to all others",
        node("rail.mlx5_1=180"),
        "fabric.rail.nic",
        phase="nccl_pairwise",
        environment=_TCP,
        between=(0.44, 0.46),
        says="mlx5_1:1",
        also=(("fabric.rail.slowest", "job"),),
    ),
    drill(
        "rail-slow-between-two",
        "an RDMA port is slow on the way to one other node only",
        node("rail.mlx5_1.n2=90"),
        "fabric.rail.slowest",
        phase="nccl_pairwise",
        environment=_TCP,
        subject="job",
        between=(0.22, 0.23),
        says="90 of 400 Gb/s",
        silent=("n0", "n1", "n2"),
    ),
    drill(
        "rail-fails",
        "every transfer over an RDMA port of one node ends with an error",
        node("rail.mlx5_1=fail"),
        "fabric.rail.nic",
        phase="nccl_pairwise",
        environment=_TCP,
        value=0.0,
        says="ib_write_bw ended with 1: Completion with error at client",
        also=(("fabric.rail.slowest", "job"),),
    ),
    drill(
        "rail-late",
        "messages over an RDMA port of one node take long",
        node("rail.mlx5_1.latency=40"),
        "fabric.rail.latency",
        phase="nccl_pairwise",
        environment=_TCP,
        subject="job",
        value=40.0,
        says="mlx5_1:1",
    ),
)
