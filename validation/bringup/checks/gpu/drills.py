"""Faults of GPUs: missing, not bound, not isolated, slow, wrong. Data only."""

from __future__ import annotations

from bringup.checks.faults import BINDING, DRIVER_OF_N1, NO_DRIVER_ON_N1
from bringup.checks.gpu import simulated_drills
from bringup.plan.drill import FOUR_NODES, UNCONFINED, Drill, NoDrill
from bringup.records import Outcome

_COMPUTE = (("BRINGUP_SMOKE_PARTS", "compute"),)


DRILLS: tuple[Drill, ...] = (
    Drill(
        id="gpu-missing",
        fault="one node has a GPU fewer than configured",
        phase="discovery",
        inject=(("on", "n1", "rm", "/dev/nvidia1"),),
        undo=(("on", "n1", "mknod", "-m", "666", "/dev/nvidia1", "c", "195", "1"),),
        gate="discovery.gpu.count",
        subject="n1",
        outcome=Outcome.FAIL,
        value=1,
        also=(("discovery.slurm.gres", "n1"),),
        silent=("n0",),
    ),
    Drill(
        id="kernel-log-unreadable",
        fault="the kernel log of one node cannot be read",
        phase="discovery",
        inject=(("on", "n1", "mv", "/dev/kmsg", "/dev/kmsg.away"),),
        undo=(("on", "n1", "mv", "/dev/kmsg.away", "/dev/kmsg"),),
        gate="discovery.kernel_log.xid",
        subject="n1",
        outcome=Outcome.INCOMPLETE,
        says="kernel log cannot be read",
        silent=("n0",),
    ),
    Drill(
        id="xid-79",
        fault="the kernel of one node says that a GPU fell off the bus",
        phase="discovery",
        inject=(
            (
                "on",
                "n1",
                "bash",
                "-c",
                "cp /dev/kmsg /dev/kmsg.before && "
                "echo '4,7,61000000,-;NVRM: Xid (PCI:0000:c1:00): 79, pid=0, GPU has fallen off the bus.' >>/dev/kmsg",
            ),
        ),
        undo=(("on", "n1", "mv", "/dev/kmsg.before", "/dev/kmsg"),),
        gate="discovery.kernel_log.xid",
        subject="n1",
        outcome=Outcome.FAIL,
        says="Xid 79 on PCI:0000:c1:00",
        silent=("n0",),
    ),
    Drill(
        id="two-tasks-one-gpu",
        fault="all tasks of a node are bound to one GPU",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "two-tasks-one-gpu"), *BINDING),
        where="anywhere",
        gate="smoke.gpu.bound",
        subject="{n1}",
        outcome=Outcome.FAIL,
        value=1,
        also=(("smoke.gpu.bound", "{n0}"),),
    ),
    Drill(
        id="no-devices-confined",
        fault="the kernel does not keep a job from another job's GPU",
        phase="smoke",
        shape=UNCONFINED,
        environment=(("BRINGUP_PROFILE", "local-cpu"), *BINDING),
        gate="smoke.jobs.refused_gpus",
        subject="n1",
        outcome=Outcome.FAIL,
        says="0 (none)",
        also=(
            ("smoke.gpu.isolated", "n1"),
            ("smoke.cpu.confined", "n1"),
            ("smoke.jobs.refused_gpus", "n0"),
            ("smoke.gpu.isolated", "n0"),
            ("smoke.cpu.confined", "n0"),
        ),
    ),
    Drill(
        id="two-jobs-one-gpu",
        fault="two jobs at the same time compute on one GPU",
        phase="smoke",
        shape=UNCONFINED,
        environment=(("BRINGUP_DRILL", "two-jobs-one-gpu"), ("BRINGUP_PROFILE", "local-cpu"), *BINDING),
        gate="smoke.jobs.distinct_gpus",
        subject="n1",
        outcome=Outcome.FAIL,
        value=1,
        also=(("smoke.jobs.distinct_gpus", "n0"),),
        consequences=(("smoke.gpu.isolated", "n?"), ("smoke.cpu.confined", "n?"), ("smoke.jobs.refused_gpus", "n?")),
    ),
    Drill(
        id="wrong-matmul",
        fault="one element of a product is wrong on one node",
        phase="smoke",
        environment=(("BRINGUP_DRILL", "wrong-matmul:{n1}"), *_COMPUTE),
        where="anywhere",
        gate="smoke.compute.wrong_values",
        subject="{n1}",
        outcome=Outcome.FAIL,
        says="wrong values on",
        between=(1, 64),
    ),
    Drill(
        id="compute-on-cpu",
        fault="one node has a driver that lists a GPU, and torch sees none",
        phase="smoke",
        inject=DRIVER_OF_N1,
        undo=NO_DRIVER_ON_N1,
        environment=_COMPUTE,
        gate="smoke.compute.device.fallback",
        subject="n1",
        outcome=Outcome.FAIL,
        says="the driver lists 1 GPUs",
    ),
    Drill(
        id="slow-matmul",
        fault="one node of four computes slowly",
        phase="smoke",
        shape=FOUR_NODES,
        environment=(("BRINGUP_DRILL", "slow-matmul:{n1}"), *_COMPUTE),
        where="anywhere",
        gate="smoke.compute.peers",
        subject="{n1}",
        outcome=Outcome.FAIL,
        says="the median of",
        also=(("smoke.compute.tflops", "{n1}"),),
        consequences=(("smoke.compute.gpu_peers", "{n1}"),),
    ),
    # with 4 % of a core torch takes most of a minute to start, and is far slower than on the other nodes
    Drill(
        id="cpu-throttled",
        fault="the kernel gives one node of four a fraction of a core",
        phase="smoke",
        shape=FOUR_NODES,
        inject=(("throttle", "n1", "3"),),  # less than a busy machine leaves to the others
        undo=(("throttle", "n1", "off"),),
        environment=_COMPUTE,
        gate="smoke.compute.peers",
        subject="n1",
        outcome=Outcome.FAIL,
        says="the median of",
        consequences=(("smoke.compute.tflops", "n1"),),
    ),
    *simulated_drills.DRILLS,
)

_TESTS = "checks/gpu"
NO_DRILL: tuple[NoDrill, ...] = (
    NoDrill(
        gates=("smoke.compute.host_to_device", "smoke.compute.device_to_device", "smoke.compute.gpu_peers"),
        reason="it needs a GPU",
        test=f"{_TESTS}/test_compute.py",
    ),
)
