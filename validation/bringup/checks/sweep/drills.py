"""Faults of single nodes under load. Data only."""

from __future__ import annotations

from typing import Any

from bringup.checks.simulated import drill, node
from bringup.plan.drill import FOUR_NODES, Drill, NoDrill
from bringup.records import Outcome


def _drill(
    id: str, fault: str, gate: str, says: str = "", environment: tuple[tuple[str, str], ...] = (), **more: object
) -> Drill:
    """On one node, asked for by BRINGUP_DRILL."""
    return Drill(
        id=id,
        fault=fault,
        phase="node_sweep",
        environment=(("BRINGUP_DRILL", f"{id}:{{n1}}"), *environment),
        where="anywhere",
        gate=gate,
        subject="{n1}",
        outcome=Outcome.FAIL,
        says=says,
        **more,  # type: ignore[arg-type]
    )


def _dcgm(id: str, fault: str, key: str, gate: str, **more: Any) -> Drill:
    return drill(id, fault, node(key), gate, **{"phase": "node_sweep", "value": 1, **more})


DRILLS: tuple[Drill, ...] = (
    _drill(
        "flipped-bit",
        "one node gives one wrong bit in a gradient, once",
        "sweep.step.cpu",
        "differs from itself",
        silent=("{n0}",),
    ),
    _drill(
        "wrong-load",
        "products under load are wrong on one node",
        "sweep.load.wrong_values",
        between=(1, 1e9),
        silent=("{n0}",),
    ),
    _drill(
        "drifting-load",
        "one node becomes slow in the middle of a load",
        "sweep.load.drift",
        between=(0, 0.5),
        consequences=(("sweep.load.peers", "{n1}"),),
        silent=("{n0}",),
    ),
    _drill(
        "slow-load",
        "one node of four is slow under load",
        "sweep.load.peers",
        between=(0, 0.5),
        shape=FOUR_NODES,
        consequences=(("sweep.load.drift", "{n1}"),),
    ),
    _drill(
        "slow-inside",
        "a large all_reduce is slow inside one node",
        "sweep.inside.peers",
        between=(0, 0.5),
        silent=("{n0}",),
    ),
    _drill(
        "exit-sweep",
        "a rank of one node ends in the middle of the sweep",
        "sweep.ranks",
        "node_sweep",
        environment=(("BRINGUP_START_S", "20"),),  # the other rank of the node waits so long for it
        consequences=(("sweep.*", "{n1}"), ("run.exit_code", "job")),
        silent=("{n0}",),
    ),
    Drill(
        id="wrong-inside",
        fault="one rank of each node contributes wrong values to collectives inside it",
        phase="node_sweep",
        environment=(("BRINGUP_DRILL", "wrong-value:1"),),
        where="anywhere",
        gate="sweep.inside.wrong_values",
        between=(1, 1e12),
        subject="{n1}",
        outcome=Outcome.FAIL,
        also=(("sweep.inside.wrong_values", "{n0}"),),
    ),
    _dcgm(
        "dcgm-test-fails",
        "NVIDIA's diagnostic finds bad memory on one GPU",
        "dcgm.memory=fail:gpu1",
        "sweep.dcgm.failed",
        says="gpu1: memory fail (A double bit ECC error was detected on GPU 1",
    ),
    _dcgm(
        "dcgm-test-skipped",
        "NVIDIA's diagnostic skips a test on one GPU",
        "dcgm.pcie=skip:gpu0",
        "sweep.dcgm.doubtful",
        outcome=Outcome.WARN,
        says="gpu0: pcie skip",
    ),
    _dcgm("dcgm-gpu-unlisted", "NVIDIA's diagnostic does not list a GPU", "dcgm.gpus=1", "sweep.dcgm.gpus"),
    _dcgm(
        "dcgm-without-engine",
        "the daemon of NVIDIA's diagnostic does not run on one node",
        "dcgm.error=Unable to connect to host engine.",
        "sweep.dcgm.failed",
        outcome=Outcome.INCOMPLETE,
        value=None,
        says="dcgmi says: Unable to connect to host engine.",
        also=(("sweep.dcgm.gpus", "n1"), ("sweep.dcgm.doubtful", "n1")),
    ),
)
NO_DRILL = (
    NoDrill(
        gates=("sweep.step.gpu", "sweep.load.pcie"),
        reason="no GPU computes on a local cluster, be it a placeholder or simulated: it has no bits and loads no link",
        test="checks/test_sweep.py",
    ),
    NoDrill(
        gates=("sweep.device", "sweep.device.fallback"),
        reason="as for compute and collectives: a local cluster has one type of device",
        test="checks/test_sweep.py",
    ),
)
