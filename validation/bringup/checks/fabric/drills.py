"""Faults of links between GPUs, NICs and nodes. Data only."""

from __future__ import annotations

from bringup.checks.fabric import rail_drills
from bringup.checks.simulated import GPU_1, drill, gpu, node, port
from bringup.plan.drill import Drill, NoDrill
from bringup.records import Outcome

_NINE_PORTS = " ".join(f"mlx5_{number}" for number in range(9))
_SAME = (("discovery.rdma.same", "n1"),)

DRILLS: tuple[Drill, ...] = (
    drill(
        "nvlink-down",
        "an NVLink of one GPU is down",
        gpu("nvlink", "5", "down"),
        "discovery.gpu.nvlinks",
        value=17,
        says=GPU_1,
    ),
    drill(
        "nvlink-retrained",
        "an NVLink of one GPU went down and was trained again",
        gpu("nvlink3.recoveries=1"),
        "discovery.gpu.nvlink_recoveries",
        value=1,
        says=GPU_1,
    ),
    drill(
        "nvlink-replays",
        "an NVLink of one GPU resent data",
        gpu("nvlink3.replays=4"),
        "discovery.gpu.nvlink_replays",
        outcome=Outcome.WARN,
        value=4,
        says=GPU_1,
    ),
    drill(
        "nvlink-damaged",
        "an NVLink of one GPU receives damaged data",
        gpu("nvlink3.crc=9"),
        "discovery.gpu.nvlink_crc_errors",
        outcome=Outcome.WARN,
        value=9,
        says=GPU_1,
    ),
    drill(
        "fabric-not-joined",
        "one GPU could not join the NVLink fabric",
        gpu("fabric=failed"),
        "discovery.gpu.fabric",
        says="completed with status 999",
    ),
    drill(
        "rdma-port-down",
        "an RDMA port of one node is down",
        port("down"),
        "discovery.rdma.active",
        value=7,
        says="mlx5_1:1 is DOWN, Disabled",
        also=_SAME,
    ),
    drill(
        "rdma-port-slow",
        "an RDMA port of one node runs at half its rate",
        port("rate=200 Gb/sec (2X NDR)"),
        "discovery.rdma.active",
        value=7,
        says="mlx5_1:1 runs at 200 Gb/s",
        also=_SAME,
    ),
    drill(
        "rdma-port-extra",
        "one node has an RDMA port that the others do not have",
        node(f"ports={_NINE_PORTS}"),
        "discovery.rdma.same",
        says="mlx5_8:1",
        consequences=(("discovery.topology", "n1"),),
    ),
    drill(
        "rdma-flaps",
        "a port of one node has lost its link many times",
        port("flap", "23"),
        "discovery.rdma.flaps",
        outcome=Outcome.WARN,
        value=23,
        says="mlx5_1:1: link_downed 23",
    ),
    drill(
        "rdma-errors",
        "a port of one node receives much damaged data",
        port("counters.symbol_error=250000"),
        "discovery.rdma.errors",
        outcome=Outcome.WARN,
        value=250000,
        says="mlx5_1:1: symbol_error 250000",
    ),
    drill(
        "gpu-other-numa-node",
        "a GPU of one node is on another NUMA node",
        gpu("numa=1"),
        "discovery.numa.gpu",
        says="0 1",
    ),
    drill(
        "gpu-without-near-nic",
        "a GPU of one node reaches its NIC across the sockets",
        gpu("nic_path=SYS"),
        "discovery.topology.nic",
        value="SYS",
        says="GPU1",
        also=(("discovery.topology", "n1"),),
    ),
    drill(
        "topology-drift",
        "a GPU and its NIC are connected differently on one node",
        gpu("nic_path=PIX"),
        "discovery.topology",
        says="GPU1 mlx5_1 PIX",
    ),
    *rail_drills.DRILLS,
)

NO_DRILL: tuple[NoDrill, ...] = (
    NoDrill(
        gates=("discovery.memlock",),
        reason="profile local-cpu says that it is not applicable",
        test="checks/test_fabric.py",
    ),
)
