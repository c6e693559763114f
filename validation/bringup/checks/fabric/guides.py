"""What to know about a gate of links and NICs that did not pass. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide
from bringup.records import Action

_PAGE = "01-environment"
_ON_THE_NODE = "srun --nodes=1 --nodelist={node} --exclusive --gpus-per-node={gpus}"
_ON_ALL_NODES = "srun --label --nodes={node_count} --nodelist={nodes} --ntasks-per-node=1"

MEMLOCK = Guide(
    title="Locked memory",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "The soft limit of locked memory inside a job step. A login shell may have another one: "
        "`PropagateResourceLimits` and the limits of slurmd decide."
    ),
    why=(
        "RDMA registers its buffers as locked memory. Under a low limit NCCL falls back to sockets or aborts "
        "(`ibv_reg_mr failed`)."
    ),
    usually_means="The systemd unit of slurmd has the default limit. *Incomplete*: the profile declares no limit.",
    next=(_ON_ALL_NODES + " bash -c 'ulimit -l'", "scontrol show config | grep -i PropagateResourceLimits"),
    by_hand=(
        "Set `LimitMEMLOCK=infinity` in the systemd unit of slurmd and `PropagateResourceLimitsExcept=MEMLOCK` in "
        "`slurm.conf`. Then restart slurmd."
    ),
)
NVLINK = Guide(
    title="NVLink and its fabric",
    page=_PAGE,
    action=Action.RESET,
    observes=(
        "`discovery.gpu.nvlinks`: how many NVLinks of every GPU are up, compared with the profile. "
        "`discovery.gpu.fabric`: the state of the NVLink fabric on machines with NVSwitches."
    ),
    why="Without the fabric CUDA does not start. With one link less, every collective inside the node is slower.",
    usually_means=(
        "*`in progress` or `not started`*: the fabric manager does not run, or its version is not that of the driver. "
        'CUDA then fails with "system not yet initialized". *Fewer links*: a link or a switch is down. A PCIe card '
        "has no links: declare `equals: 0`. *Incomplete*: NVML is not there or does not answer, or the profile has no "
        "number."
    ),
    next=(
        "srun --nodes=1 --nodelist={node} systemctl status nvidia-fabricmanager --no-pager",
        _ON_THE_NODE + " nvidia-smi nvlink -s",
        _ON_THE_NODE + " nvidia-smi topo -m",
    ),
)
NVLINK_ERRORS = Guide(
    title="NVLink errors",
    page=_PAGE,
    action=Action.RESET,
    observes=(
        "The counters of NVML for the links that are up, added up for each GPU, since the driver was loaded. "
        "`discovery.gpu.nvlink_recoveries`: a link went down and was trained again. `discovery.gpu.nvlink_replays`: "
        "data was resent. `discovery.gpu.nvlink_crc_errors`: data arrived damaged."
    ),
    why="A link that is about to fail is seen here first, before a job hangs on it.",
    usually_means=(
        "*Recoveries*: a link, cable or connector that is about to fail. *Replays and CRC errors*: the link corrected "
        "them itself, and they only warn. A few in weeks are nothing. Many, or many on one GPU, slow every "
        "collective. *Incomplete*: the GPU does not count this kind; NVLink 5 has other counters. For GPUs without "
        "NVLink declare the gates `not_applicable`."
    ),
    next=(_ON_THE_NODE + " nvidia-smi nvlink -e",),
    by_hand="Look before and after a run. Then reseat the card, or reset the GPU, and look again.",
)
RDMA_PORTS = Guide(
    title="RDMA ports",
    page=_PAGE,
    action=Action.REPLACE,
    observes=(
        "Every port under `/sys/class/infiniband`: state, physical state, rate, link layer, NUMA node. "
        "`discovery.rdma.same` compares all of it between the nodes. Nodes that all have no port are equal, and the "
        "verdict says `none`. `discovery.rdma.active` counts the ports that are `ACTIVE`, `LinkUp` and at least as "
        "fast as the profile says. Other ports, for storage for example, do not matter. The profile names the rate "
        "with `at:`, one of 10, 25, 40, 50, 56, 100, 200, 400 and 800 Gb/s."
    ),
    why="Every GPU of a collective waits for the slowest NIC. A NIC that is down sends its GPU over another one.",
    usually_means=(
        "*`DOWN`, `Polling`*: no cable, or the port of the switch is off. *`INIT`, `LinkUp`*: there is no subnet "
        "manager. *A lower rate*: the cable or the transceiver was trained down. *`none` on one node*: the driver "
        "(`mlx5_ib`, `efa`) is not loaded. *Incomplete*: a file of a port could not be read, or the profile has no "
        "number."
    ),
    next=(
        "srun --nodes=1 --nodelist={node} bash -c 'head /sys/class/infiniband/*/ports/*/{state,phys_state,rate}'",
        "srun --nodes=1 --nodelist={node} ibv_devinfo -v",
        "grep -h discovery.rdma {run}/raw/inventory*.jsonl",
    ),
    by_hand="On the node, `mlxlink -d mlx5_0` as root gives a recommendation for a port of that NIC.",
)
RDMA_COUNTERS = Guide(
    title="Counters of RDMA ports",
    page=_PAGE,
    action=Action.WATCH,
    observes=(
        "Counters under `/sys/class/infiniband/*/ports/*/counters`, since the driver was loaded or the counters were "
        "cleared. `discovery.rdma.flaps`: `link_downed` and `link_error_recovery`. `discovery.rdma.errors`: "
        "`symbol_error`, `port_rcv_errors` and `local_link_integrity_errors`. The sum of the worst port of the node "
        "is judged, and the verdict names the port and its counters. A node without a port passes."
    ),
    why=(
        "A link that goes down for a second ends a job or makes it wait. A link with many errors resends, and every "
        "collective waits."
    ),
    usually_means=(
        "A dirty or loose connector, a cable at the end of its life, or a transceiver. The same count on all ports of "
        "a rack: a switch was restarted, which is not a fault. The gate only warns, because these are sums over weeks: "
        "what counts is whether they grow. *Incomplete*: the driver has no such counters, as that of EFA."
    ),
    next=(
        "srun --nodes=1 --nodelist={node} bash -c 'grep . /sys/class/infiniband/*/ports/*/counters/{link,sym}*'",
        "grep -h inventory.rdma {run}/raw/inventory*.jsonl",
    ),
    by_hand="Look again after a run. `perfquery -R` clears them; `mlxlink -d mlx5_0 -c` shows more.",
)
AFFINITY = Guide(
    title="Which devices are near each other",
    page=_PAGE,
    action=Action.CONFIGURE,
    observes=(
        "`discovery.numa.gpu`: the NUMA node of every GPU, in the order of their PCI addresses. "
        "`discovery.topology`: the paths between devices in `nvidia-smi topo -m`, compared between the nodes; the "
        "full table is in `raw/`. `discovery.topology.nic`: the path from each GPU to its nearest NIC; the worst "
        "GPU is judged. `PIX` and `PXB` stay below PCIe switches, `PHB` and `NODE` cross the host bridge, `SYS` "
        "crosses the sockets."
    ),
    why="A GPU whose nearest NIC is on the other socket is slower than its peers, in every collective between nodes.",
    usually_means=(
        "A NIC or GPU is in another slot. A NIC is missing, and its GPU uses one on the other socket. A BIOS "
        "setting differs (NUMA nodes per socket, ACS). Or a virtual machine hides the topology. *Incomplete*: "
        "`nvidia-smi` is not there, or the firmware does not report the NUMA node (`-1` on a node with several)."
    ),
    next=(_ON_ALL_NODES + " --gpus-per-node={gpus} nvidia-smi topo -m", "srun --nodes=1 --nodelist={node} lspci -tv"),
    by_hand="Where a virtual machine hides the topology, give NCCL a file with it: `NCCL_TOPO_FILE`.",
)
RAILS = Guide(
    title="Every RDMA port alone",
    page="03-collectives",
    action=Action.REPLACE,
    observes=(
        "`ib_write_bw` and `ib_write_lat` of the package perftest, between host memory, one port after another: "
        "those active ports that are as fast as the fastest of the node. The bandwidth is judged as a share of the "
        "port's rate in sysfs, on the slower side.\n"
        "\n"
        "- `fabric.loopback`, in the node sweep: each port with itself.\n"
        "- `fabric.rail.slowest`, beside the pairs of nodes: each port with the port of the same name (a rail) on "
        "the node before and the node after it in the list, in both directions. The slowest is judged.\n"
        "- `fabric.rail.nic`, from 3 nodes on: what each port reaches with the better of its two partners. So a bad "
        "partner does not fail a node.\n"
        "- `fabric.rail.latency`: the typical time of a message of 8 bytes; the longest of all rails is judged.\n"
        "\n"
        "A test that started and failed counts as 0, and the verdict shows its last line."
    ),
    why=(
        "NCCL spreads its traffic over all NICs, so one slow NIC looks like a slightly slow cluster. This test names "
        "it."
    ),
    usually_means=(
        "*Loopback*: the slot (fewer lanes, a lower generation, no relaxed ordering) or the NIC. *A rail whose "
        "loopback passes*: the cable, the transceiver or the port of the switch. *All rails of two nodes*: their "
        "path, or options that this fabric needs and perftest does not choose itself: name them in "
        "`BRINGUP_PERFTEST` (`-x 3`, `--tclass=106`). *Incomplete*: perftest is not installed, no port is active, or "
        "a node has no port of that name. With two nodes it is not known which end of a rail is slow; "
        "`fabric.loopback` may show it. A cluster without RDMA declares the gates `not_applicable`, and the tests do "
        "not run."
    ),
    next=(
        "grep -h rail. {run}/raw/pairs-rails-*.jsonl",
        "grep -h loopback. {run}/raw/loopback.jsonl",
        "srun --nodes=1 --nodelist={node} bash -c 'head /sys/class/infiniband/*/ports/*/{state,rate}'",
        "srun --nodes=1 --nodelist={node} lspci -vv",
    ),
    by_hand="On the node, `mlxlink -d mlx5_0 -c` as root shows the quality of the link of that NIC.",
)
