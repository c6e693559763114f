"""Faults of simulated GPU nodes, for the drills of several rooms. Each is a verb of the local cluster."""

from __future__ import annotations

from typing import Any

from bringup.plan.drill import SIMULATED, Command, Drill
from bringup.records import Outcome

GPU_1 = "GPU-00000000-0000-8575-9a7a-461ee90213dc"  # of n1: the UUID is made of the names
REPAIR: tuple[Command, ...] = (("gpu", "n1", "repair"),)
# n1 with a second NUMA node, to which no CPU belongs
TWO_NUMA_NODES: tuple[Command, ...] = (
    (
        "on",
        "n1",
        "bash",
        "-euc",
        "cpus=$(cat /sys/devices/system/node/node0/cpulist); mount -t tmpfs tmpfs /sys/devices/system/node; "
        'cd /sys/devices/system/node; mkdir node0 node1; echo "$cpus" >node0/cpulist; echo >node1/cpulist',
    ),
)
ONE_NUMA_NODE: tuple[Command, ...] = (("on", "n1", "umount", "--lazy", "/sys/devices/system/node"),)


def gpu(*fault: str) -> tuple[Command, ...]:
    """A fault of GPU 1 of n1."""
    return (("gpu", "n1", "1", *fault),)


def node(change: str) -> tuple[Command, ...]:
    """A fault in what the driver of n1 reports about the node."""
    return (("gpu", "n1", change),)


def port(*fault: str) -> tuple[Command, ...]:
    """A fault of the RDMA port of GPU 1 of n1."""
    return (("port", "n1", "mlx5_1", *fault),)


def drill(id: str, fault: str, inject: tuple[Command, ...], gate: str, **more: Any) -> Drill:
    """A drill whose fault discovery must report on n1 only."""
    return Drill(
        **{
            "phase": "discovery",
            "outcome": Outcome.FAIL,
            "undo": REPAIR,
            "subject": "n1",
            "silent": ("n0", "n2"),
            **more,
        },
        id=id,
        fault=fault,
        shape=SIMULATED,
        inject=inject,
        gate=gate,
    )


def under_load(id: str, fault: str, during: tuple[Command, ...], gate: str, **more: Any) -> Drill:
    """A drill whose fault comes under load, after the counters were read for the first time."""
    return Drill(
        **{"outcome": Outcome.FAIL, "undo": REPAIR, "subject": "n1", **more},
        id=id,
        fault=fault,
        shape=SIMULATED,
        during=during,
        gate=gate,
    )
