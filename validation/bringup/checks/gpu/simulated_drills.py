"""Faults of GPUs that a driver tells: on simulated nodes, GPU 1 of n1. Data only."""

from __future__ import annotations

from bringup.checks.faults import BINDING
from bringup.checks.simulated import GPU_1, ONE_NUMA_NODE, REPAIR, TWO_NUMA_NODES, drill, gpu, node
from bringup.plan.drill import Drill
from bringup.records import Outcome

_SHARED_UUID = "GPU-00000000-0000-0000-0000-000000000001"

DRILLS: tuple[Drill, ...] = (
    drill(
        "gpu-lost",
        "a GPU of one node fell off the bus, and its device file is still there",
        gpu("lost"),
        "discovery.gpu.answering",
        value=1,
        says=f"GPU 1: GPU is lost; not heard of: {GPU_1}",
    ),
    drill(
        "gpu-hangs",
        "a GPU of one node gives neither an answer nor an error",
        gpu("hang"),
        "discovery.gpu.answering",
        environment=(("BRINGUP_GPU_S", "2"),),
        value=1,
        says=f"GPU 1: no answer within 2 s; not heard of: {GPU_1}",
    ),
    drill(
        "driver-does-not-start",
        "library and kernel module of the driver do not match on one node",
        node("init=error:18"),
        "discovery.gpu.answering",
        outcome=Outcome.INCOMPLETE,
        says="NVML/RM version mismatch",
    ),
    drill(
        "driver-drift",
        "one node has another driver",
        node("driver=550.54.15"),
        "discovery.gpu.driver",
        says="550.54.15",
    ),
    drill(
        "gpu-other-model",
        "one GPU is of another model",
        gpu("name=NVIDIA H100 PCIe"),
        "discovery.gpu.model",
        says="H100 PCIe",
    ),
    drill(
        "gpu-less-memory", "one GPU has less memory", gpu("memory=84446101504"), "discovery.gpu.memory", says="78.65"
    ),
    drill("gpu-divided", "one GPU is divided (MIG)", gpu("mig=on"), "discovery.gpu.mig", value="on", says=GPU_1),
    drill(
        "gpu-twice",
        "two nodes see one GPU",
        (("gpu", "n0", "0", f"uuid={_SHARED_UUID}"), ("gpu", "n1", "0", f"uuid={_SHARED_UUID}")),
        "discovery.gpu.distinct",
        undo=(("gpu", "n0", "repair"), *REPAIR),
        value=1,
        says=_SHARED_UUID,
        also=(("discovery.gpu.distinct", "n0"),),
        silent=("n2",),
    ),
    drill(
        "gpu-ecc",
        "a GPU has counted uncorrected memory errors",
        gpu("ecc", "2"),
        "discovery.gpu.ecc",
        value=2,
        says=GPU_1,
    ),
    drill(
        "gpu-remap-pending",
        "a GPU waits for a reset",
        gpu("remap_pending=1"),
        "discovery.gpu.remap_pending",
        value=True,
        says=GPU_1,
    ),
    drill(
        "gpu-remap-failed",
        "a GPU has no spare row left",
        gpu("remap_failed=1"),
        "discovery.gpu.remap_failed",
        value=True,
        says=GPU_1,
    ),
    *(
        drill(id, fault, gpu(f"{key}={count}"), gate, outcome=Outcome.WARN, value=count, says=GPU_1)
        for id, fault, key, count, gate in (
            (
                "gpu-corrects-much",
                "a GPU corrects thousands of memory errors",
                "ecc_corrected",
                4711,
                "discovery.gpu.ecc_corrected",
            ),
            ("gpu-replaced-rows", "a GPU has replaced many rows", "remapped", 9, "discovery.gpu.remapped_uncorrected"),
            (
                "gpu-replaced-corrected-rows",
                "a GPU has replaced many rows after corrected errors",
                "remapped_corrected",
                9,
                "discovery.gpu.remapped_corrected",
            ),
        )
    ),
    drill(
        "gpu-hot",
        "a GPU slows down because of heat",
        gpu("throttle"),
        "discovery.gpu.slowdown",
        says=f"hardware thermal ({GPU_1})",
    ),
    drill(
        "gpu-half-its-lanes",
        "a GPU uses half of its PCIe lanes",
        gpu("pcie_width=8"),
        "discovery.gpu.pcie",
        value=8,
        says=GPU_1,
    ),
    drill(
        "gpu-in-use",
        "another process computes on a GPU",
        gpu("processes=4711"),
        "discovery.gpu.free",
        value=1,
        says=GPU_1,
    ),
    drill(
        "gpu-not-persistent",
        "the driver of a GPU is unloaded between jobs",
        gpu("persistence=off"),
        "discovery.gpu.persistence",
        outcome=Outcome.WARN,
        value=False,
        says=GPU_1,
    ),
    drill(
        "xid-nonfatal",
        "the kernel of one node has an NVLink message that calls itself nonfatal",
        gpu("xid", "145"),
        "discovery.kernel_log.nonfatal",
        outcome=Outcome.WARN,
        value=1,
        says="Xid 145",
    ),
    drill(
        "gpu-far-from-cpus",
        "the CPUs of a task are at another NUMA node than its GPU",
        (*TWO_NUMA_NODES, *gpu("numa=1")),
        "smoke.cpu.near_gpu",
        phase="smoke",
        environment=BINDING,
        undo=(*ONE_NUMA_NODE, *REPAIR),
        outcome=Outcome.WARN,
        value=0.0,
        says=f"{GPU_1} sits at NUMA node 1",
        silent=(),
    ),
)
