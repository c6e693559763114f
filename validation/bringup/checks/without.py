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


_GPU_TESTS = "test_discovery_gpus.py"
_NO_DRIVER = "the local cluster has no GPU driver"

WITHOUT: tuple[Without, ...] = (
    Without(
        tuple(
            f"discovery.gpu.{name}"
            for name in (
                "answering",
                "driver",
                "model",
                "memory",
                "mig",
                "distinct",
                "ecc",
                "remap_pending",
                "remap_failed",
                "slowdown",
                "pcie",
                "nvlinks",
                "nvlink_recoveries",
                "nvlink_replays",
                "nvlink_crc_errors",
                "fabric",
                "free",
                "persistence",
            )
        ),
        _NO_DRIVER,
        _GPU_TESTS,
    ),
    Without(
        (
            "discovery.rdma.active",
            "discovery.numa.gpu",
            "discovery.topology",
            "discovery.topology.nic",
            "smoke.cpu.near_gpu",
        ),
        "no RDMA device, no NUMA node of a GPU and no nvidia-smi here",
        "test_fabric.py",
    ),
    Without(
        ("discovery.memlock",),
        "profile local-cpu calls it not applicable",
        "test_discovery.py",
    ),
    Without(
        ("smoke.compute.host_to_device", "smoke.compute.device_to_device", "smoke.compute.gpu_peers"),
        "it needs a GPU",
        "test_smoke.py",
    ),
    Without(
        ("nccl.gdr", "nccl.nics", "nccl.nvls"),
        "no InfiniBand and no NVSwitch here; on a cluster that has them, bringup drill --anywhere",
        "test_nccl_log.py",
    ),
)
