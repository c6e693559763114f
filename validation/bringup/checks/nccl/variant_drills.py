"""Faults that only one variant of NCCL shows, on simulated nodes with stand-ins of nccl-tests. Data only."""

from __future__ import annotations

from typing import Any

from bringup.checks.simulated import drill
from bringup.plan.drill import Drill

_STAND_INS = (
    ("BRINGUP_PROFILE", "simulated-nccl-tests"),
    ("NCCL_TESTS_BIN", "infrastructure-validation/local-cluster/simulated/bin"),
    ("NCCL_TESTS_MPI", "none"),
)


def _way(id: str, fault: str, keys: tuple[str, ...], gate: str, says: str, **more: Any) -> Drill:
    """On the first node, which takes part at every scale."""
    return drill(
        id,
        fault,
        (("gpu", "n0", *keys),),
        gate,
        **{
            "phase": "nccl_scaling",
            "environment": _STAND_INS,
            "undo": (("gpu", "n0", "repair"),),
            "subject": "1-node",
            "says": says,
            "silent": ("n1", "n2"),
            **more,
        },
    )


DRILLS: tuple[Drill, ...] = (
    _way(
        "ways-not-taken",
        "NCCL uses NVLS, another algorithm than Ring, and NVLink, each time against its settings",
        ("nccl.nvls=ignored", "nccl.ring=ignored", "nccl.p2p=ignored"),
        "nccl.variant.nvls_off.effect",
        "16 nvls channels",
        also=tuple(
            (f"nccl.variant.{name}.effect", scale)
            for name in ("nvls_off", "ring", "nic")
            for scale in ("1-node", "2-nodes")
        ),
    ),
    _way(
        "nvlink-not-alone",
        "GPUs of one node do not reach each other over NVLink, and shared memory is used without a message",
        ("nccl.nvlink=broken", "nccl.shm=ignored"),
        "nccl.variant.nvlink.effect",
        "via SHM/direct",
        # nothing is left for NICs only; and shared memory is slow
        consequences=(("nccl.variant.*", "*"),),
    ),
    _way(
        "ways-slow",
        "every path of NCCL is half as fast",
        ("nccl.speed=0.5",),
        "nccl.variant.nvlink.busbw",
        "GB/s",
        between=(150, 200),
        also=tuple((f"nccl.variant.{name}.busbw", "1-node") for name in ("nic", "ring", "nvls_off")),
        consequences=(("nccl.variant.*.busbw", "2-nodes"),),
    ),
)
