"""Gates of phase 1: RDMA ports, and how GPUs, NICs and NUMA nodes lie to each other. Data only."""

from __future__ import annotations

from bringup.gates.gate import Fleet, FromProfile, Gate

_ENV = "docs/01-environment.md#"

FABRIC = (
    Gate(
        id="discovery.rdma.same",
        phases=("discovery",),
        question=4,
        per="node",
        min_nodes=2,
        proves="all nodes have the same RDMA ports, in the same state, at the same rate, at the same NUMA nodes",
        quantity="discovery.rdma.same",
        unit="text",
        rule="all_equal",
        expect=Fleet(),
        fix=_ENV + "rdma-ports",
    ),
    Gate(
        id="discovery.rdma.active",
        phases=("discovery",),
        question=4,
        per="node",
        proves="as many RDMA ports as the profile says are ACTIVE, have a link, and run at its rate or faster",
        quantity="discovery.rdma.active",
        unit="count",
        rule="at_least",
        expect=FromProfile(),
        fix=_ENV + "rdma-ports",
    ),
    Gate(
        id="discovery.numa.gpu",
        phases=("discovery",),
        question=4,
        per="node",
        proves="the NUMA node of every GPU is known, and the same on all nodes",
        quantity="discovery.gpu.numa",
        unit="text",
        rule="all_equal",
        expect=Fleet(),
        fix=_ENV + "affinity",
    ),
    Gate(
        id="discovery.topology",
        phases=("discovery",),
        question=4,
        per="node",
        min_nodes=2,
        proves="GPUs and NICs are connected alike on all nodes (nvidia-smi topo -m)",
        quantity="discovery.topology",
        unit="text",
        rule="all_equal",
        expect=Fleet(),
        fix=_ENV + "affinity",
    ),
    Gate(
        id="discovery.topology.nic",
        phases=("discovery",),
        question=4,
        per="node",
        proves="every GPU reaches a NIC over a path that the profile allows (nvidia-smi topo -m)",
        quantity="discovery.topology.nic",
        unit="text",
        rule="one_of",
        expect=FromProfile(),
        fix=_ENV + "affinity",
    ),
)
