"""What to know about a gate of the counters of a node that did not pass. Data only."""

from __future__ import annotations

from bringup.plan.guide import Guide
from bringup.records import Action

_PAGE = "02-infrastructure-validation"
_AGAIN = "sbatch --nodes=1 --nodelist={node} infrastructure-validation/scripts/node_sweep.sbatch"

COUNTERS = Guide(
    title="Counters under load",
    page=_PAGE,
    action=Action.RESET,
    observes=(
        "Counters are read before and after the load of every phase from the node sweep on, and the increase of each "
        "is counted. `load.gpu_faults` and `load.gpu_corrected`: memory errors, remapped rows, NVLink and PCIe of "
        "each GPU, by NVML. `load.node_faults` and `load.node_corrected`: ports of RDMA devices, network cards, "
        "memory controllers (EDAC) and throttled CPUs, from `/sys`. `load.kernel_log`: messages of the GPU driver "
        "that ask for action."
    ),
    why="A fault that shows only under load is not seen on an idle node. It ends the training instead.",
    usually_means=(
        "The verdict names the counter and the device. *Faults*: reset or replace the device; the [table of "
        "Xids](07-failure-modes.md#xids) says which. *Corrected errors*: they only warn; many of them, or all on one "
        "device, mean a device or a cable that is about to fail. *Incomplete*: one of the two steps did not end "
        "within a minute (`raw/counters-after.err`), NVML does not answer, the node lists no such counter (declare "
        "it not applicable), or the kernel log may not be read by users."
    ),
    next=("grep -r load.counter {run}/raw/", _AGAIN),
)
SENT_AGAIN = Guide(
    title="Retransmitted packets",
    page=_PAGE,
    action=Action.WATCH,
    observes=(
        "The share of what a node sent between the two readings that was a retransmission. `load.tcp_sent_again`: "
        "`RetransSegs` as a share of `OutSegs` (`/proc/net/snmp`), over all connections of the node, also those of "
        "its shared filesystem and of its ranks with each other; without those that the receiver reported to have "
        "already (`TCPDSACKRecvSegs` of `/proc/net/netstat`), which were late or out of order and not lost. "
        "`load.rdma_sent_again`: `packet_seq_err`, `local_ack_timeout_err`, `implied_nak_seq_err` and "
        "`roce_adp_retrans` (on Broadcom `to_retransmits` and `seq_err_naks_rcvd`) as a share of "
        "`port_xmit_packets`, of the port with the largest share. Fewer than 10,000 packets count as 10,000. A node "
        "without an RDMA port has retransmitted none. `out_of_sequence` and `rnr_nak_retry_err` are read and not "
        "judged: adaptive routing and a slow receiver raise them on a sound network."
    ),
    why=(
        "No card and no link counts a lost packet as an error. TCP and RDMA repair it, and that costs time: RDMA "
        "resends everything after it."
    ),
    usually_means=(
        "The named node retransmitted; the packet was lost on its way out, at a switch, or at the receiver. One "
        "node alone: its cable or its port. All nodes: the network is full, or flow control (PFC, ECN) is not set "
        "up; then a node without a warning may be the receiver that drops packets. *Incomplete*: the driver has no "
        "such counters (declare it not applicable)."
    ),
    next=(
        "grep -r 'load.counter.*\\(again\\|twice\\|seq_err\\|timeout\\|retrans\\)' {run}/raw/",
        "srun --nodes=1 --nodelist={node} bash -c 'ip -s link; grep . /sys/class/infiniband/*/ports/*/hw_counters/*'",
    ),
)
