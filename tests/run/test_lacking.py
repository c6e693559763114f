"""A variant of NCCL is not planned where discovery found none of the hardware that it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bringup.plan import planned, profile
from bringup.records import Observation, Run
from bringup.run.healthy_rest import lacking
from factory import a_run
from loops import for_each

NODES = ("n0", "n1")


@dataclass
class Discovery:
    """A discovery of two nodes with one GPU each."""

    observations: list[Observation]
    run: Run = field(default_factory=lambda: a_run("discovery", NODES, gpus=1))


def discovery_of(ports: object = 0, state: str | None = None, links: object = 0) -> Any:
    facts = [("discovery.rdma.ports", "n0", 0), ("discovery.rdma.ports", "n1", ports)]
    facts += [("discovery.gpu.nvlinks", "n0/GPU-a", 0), ("discovery.gpu.nvlinks", "n1/GPU-b", links)]
    if state is not None:
        facts.append(("discovery.rdma.state", "n1/mlx5_0:1", state))
    return Discovery(
        [
            Observation(quantity=quantity, subject=subject, value=value, unit="text", evidence="x", why=None)
            for quantity, subject, value in facts
        ]
    )


@for_each(
    ("discovery", "lacks"),
    [
        (discovery_of(), "rdma nvlink"),
        (discovery_of(ports=1, state="1: DOWN"), "rdma nvlink"),
        (discovery_of(ports=1, state="4: ACTIVE"), "nvlink"),
        (discovery_of(ports=None), "nvlink"),
        (discovery_of(links=18), "rdma"),
        (discovery_of(links=None), "rdma"),
    ],
)
def test_only_what_every_node_says_that_it_lacks_is_lacking(discovery: Any, lacks: str) -> None:
    assert lacking([discovery]) == lacks


def test_a_gpu_that_says_nothing_of_its_links_is_not_without_any() -> None:
    discovery = discovery_of()
    discovery.run = a_run("discovery", NODES, gpus=2)  # two of four GPUs say that they have none
    assert lacking([discovery]) == "rdma"


def test_without_a_discovery_nothing_is_known_to_be_lacking() -> None:
    assert lacking([]) == ""


def test_a_variant_without_its_hardware_is_not_planned_and_the_reason_is_said() -> None:
    generic = profile.load("generic")
    entries = planned.without("nccl_scaling", ["rdma", "nvlink"], generic)
    assert {entry.gate: entry.reason.split()[3] for entry in entries} == {
        "nccl.variant.nvlink.effect": "NVLink",
        "nccl.variant.nvlink.busbw": "NVLink",
        "nccl.variant.nic.effect": "active",
        "nccl.variant.nic.busbw": "active",
    }
    assert planned.without("nccl_scaling", [], generic) == []
    assert planned.without("smoke", ["rdma"], generic) == []
