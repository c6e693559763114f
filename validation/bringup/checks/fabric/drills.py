"""Faults of links between GPUs, NICs and nodes. Data only."""

from __future__ import annotations

from bringup.checks.faults import ALL
from bringup.plan.drill import FOUR_NODES, Drill, NoDrill
from bringup.records import Outcome

# the kernel's own links to interfaces, and a device beside them
_FAKE_RDMA = (
    "rm -rf /tmp/class && mkdir /tmp/class && cp -a /sys/class/net /tmp/class && hca=/tmp/class/infiniband/mlx5_0 && "
    "port=$hca/ports/1 && mkdir -p $port $hca/device && echo '4: ACTIVE' >$port/state && "
    "echo '5: LinkUp' >$port/phys_state && echo '400 Gb/sec (4X NDR)' >$port/rate && "
    "echo InfiniBand >$port/link_layer && echo 0 >$hca/device/numa_node && mkdir $port/counters && "
    "cd $port/counters && "
    "for name in link_downed link_error_recovery symbol_error port_rcv_errors local_link_integrity_errors; "
    "do echo 0 >$name; done && %s && mount --bind /tmp/class /sys/class"
)


def _counts(id: str, fault: str, gate: str, counter: str, count: int) -> Drill:
    return Drill(
        id=id,
        fault=fault,
        phase="discovery",
        shape=FOUR_NODES,
        inject=(("on", "n1", "bash", "-c", _FAKE_RDMA % f"echo {count} >{counter}"),),
        undo=(("on", "n1", "umount", "/sys/class"),),
        gate=gate,
        subject="n1",
        outcome=Outcome.WARN,
        value=count,
        says=f"mlx5_0:1: {counter} {count}",
        consequences=(("discovery.rdma.same", "n1"),),  # the others have no port
        silent=ALL,
    )


DRILLS: tuple[Drill, ...] = (
    Drill(
        id="rdma-port-extra",
        fault="one node has an RDMA port that the others have not",
        phase="discovery",
        shape=FOUR_NODES,
        inject=(("on", "n1", "bash", "-c", _FAKE_RDMA % "true"),),
        undo=(("on", "n1", "umount", "/sys/class"),),
        gate="discovery.rdma.same",
        subject="n1",
        outcome=Outcome.FAIL,
        says="mlx5_0:1: ACTIVE LinkUp 400 Gb/sec",
        silent=ALL,
    ),
    _counts("rdma-flaps", "a port of one node has lost its link many times", "discovery.rdma.flaps", "link_downed", 23),
    _counts("rdma-errors", "a port of one node gets much damaged", "discovery.rdma.errors", "symbol_error", 250000),
)

NO_DRILL: tuple[NoDrill, ...] = (
    NoDrill(
        gates=(
            "discovery.gpu.nvlinks",
            "discovery.gpu.nvlink_recoveries",
            "discovery.gpu.nvlink_replays",
            "discovery.gpu.nvlink_crc_errors",
            "discovery.gpu.fabric",
        ),
        reason="the local cluster has no GPU driver",
        test="checks/gpu/test_gpu_health.py",
    ),
    NoDrill(
        gates=("discovery.rdma.active", "discovery.numa.gpu", "discovery.topology", "discovery.topology.nic"),
        reason="no RDMA device, no NUMA node of a GPU and no nvidia-smi here",
        test="checks/test_fabric.py",
    ),
    NoDrill(
        gates=("discovery.memlock",),
        reason="profile local-cpu says that it is not applicable",
        test="checks/test_fabric.py",
    ),
)
