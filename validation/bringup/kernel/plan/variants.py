"""Paths that NCCL is restricted to, one at a time, and what its log must show: validation/known/nccl_variants.yaml."""

from bringup.kernel.records import Record, known

RDMA, NVLINK = "rdma", "nvlink"
LACKING = {RDMA: "discovery found no active RDMA port on any node", NVLINK: "discovery found no NVLink up on any GPU"}
LOG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,GRAPH,ENV,TUNING"}
COLLECTIVE = "all_reduce"


class Variant(Record):
    name: str
    says: str
    settings: dict[str, str]  # for NCCL
    shows: str  # what the log must show
    most_nodes: int = 2
    needs: str = ""  # hardware; where discovery found none of it, the variant is not planned


VARIANTS = known("nccl_variants", tuple[Variant, ...])
