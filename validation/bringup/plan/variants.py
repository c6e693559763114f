"""Paths that NCCL is restricted to, one at a time, each with what its log must show. Data only.

A variable is not evidence: NCCL may ignore it, and a site's file or a plugin may override it. The log is read by
evidence/nccl_variant.py.
"""

from __future__ import annotations

from dataclasses import dataclass

RDMA, NVLINK = "rdma", "nvlink"
LACKING = {RDMA: "discovery found no active RDMA port on any node", NVLINK: "discovery found no NVLink up on any GPU"}
LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,ENV,TUNING"}
COLLECTIVE = "all_reduce"


@dataclass(frozen=True)
class Variant:
    name: str
    says: str
    settings: dict[str, str]  # for NCCL
    shows: str  # what the log must show
    most_nodes: int = 2
    needs: str = ""  # hardware; where discovery found none of it, the variant is not planned


VARIANTS = (
    Variant(
        "nvlink",
        "NVLink only",
        {"NCCL_P2P_LEVEL": "NVL", "NCCL_SHM_DISABLE": "1", "NCCL_NET_DISABLE_INTRA": "1", "NCCL_NVLS_ENABLE": "0"},
        "every channel is P2P, which was limited to NVLink",
        most_nodes=1,
        needs=NVLINK,
    ),
    Variant(
        "nic",
        "NICs only, inside the node too",
        {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MNNVL_ENABLE": "0"},
        "every channel goes over the network, and that is not TCP",
        needs=RDMA,
    ),
    Variant("ring", "the algorithm Ring", {"NCCL_ALGO": "Ring"}, "all_reduce took Ring at every size"),
    Variant("nvls_off", "no reduction in the NVLink switches", {"NCCL_NVLS_ENABLE": "0"}, "there are 0 nvls channels"),
)
