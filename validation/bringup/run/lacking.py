"""Hardware that discovery did not find on any node: phases then plan no gate that needs it."""

from __future__ import annotations

from collections.abc import Iterable

from bringup.judge import Judged
from bringup.plan.variants import NVLINK, RDMA

VARIABLE = "BRINGUP_LACKING"


def lacking(judged: Iterable[Judged]) -> str:
    """`rdma nvlink`, of the last discovery. Only what every one of its nodes answered: silence is no absence."""
    discovery = {run.run.phase: run for run in judged}.get("discovery")
    if discovery is None:
        return ""
    values: dict[str, list[object]] = {}
    for fact in discovery.observations:
        if fact.quantity == "discovery.rdma.ports" or "/" in fact.subject:
            values.setdefault(fact.quantity, []).append(fact.value)
    states = values.get("discovery.rdma.state", [])
    counts = values.get("discovery.rdma.ports", [])
    links = values.get("discovery.gpu.nvlinks", [])
    has_no_rdma = len(counts) == len(discovery.run.nodes) and all(isinstance(count, int) for count in counts)
    has_no_rdma = has_no_rdma and all(isinstance(state, str) and "ACTIVE" not in state for state in states)
    has_no_nvlink = len(links) == len(discovery.run.nodes) * discovery.run.gpus_per_node and all(
        link == 0 for link in links
    )
    return " ".join(name for name, is_lacking in ((RDMA, has_no_rdma), (NVLINK, has_no_nvlink)) if is_lacking)
