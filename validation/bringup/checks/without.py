"""Gates that no drill makes fail, each with the reason and the test that shows it failing on evidence. Data only.

A test refuses a gate that is neither here nor in a drill, and one that is in both.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Without:
    gates: tuple[str, ...]
    reason: str
    test: str  # file in tests/ that shows it failing


WITHOUT: tuple[Without, ...] = (
    Without(
        ("nccl.gdr", "nccl.nics", "nccl.nvls"),
        "no InfiniBand and no NVSwitch here; on a cluster that has them, bringup drill --anywhere",
        "test_nccl_log.py",
    ),
)
