"""Gates of links between GPUs, NICs and nodes: NVLink, RDMA ports, topology. Data only."""

from __future__ import annotations

from bringup.checks.fabric import guides
from bringup.plan.gate import Fixed, Fleet, FromProfile, Gate
from bringup.records import Outcome

_ONLY = ("discovery",)
_ANSWERED = ("discovery.gpu.answering",)  # a GPU that says nothing would not be missed below

GATES: tuple[Gate, ...] = (
    Gate(
        id="discovery.memlock",
        phases=_ONLY,
        bears_on=("over-the-fabric",),
        per="node",
        proves="a task may lock memory, as RDMA needs it",
        unit="text",
        rule="equals",
        expect=FromProfile(),
        guide=guides.MEMLOCK,
    ),
    Gate(
        id="discovery.gpu.nvlinks",
        phases=("discovery",),
        bears_on=("speed-inside",),
        per="node",
        proves="every GPU has as many NVLinks up as the profile says",
        unit="count",
        rule="equals",
        expect=FromProfile(),
        needs=_ANSWERED,
        guide=guides.NVLINK,
    ),
    Gate(
        id="discovery.gpu.nvlink_recoveries",
        phases=("discovery",),
        bears_on=("speed-inside",),
        per="node",
        proves="no NVLink went down and had to be trained again since the driver was loaded",
        unit="count",
        rule="equals",
        expect=Fixed(0),
        needs=_ANSWERED,
        stops=(Outcome.FAIL,),
        guide=guides.NVLINK_ERRORS,
    ),  # the newest NVLinks count otherwise, and PCIe cards have none
    *(
        Gate(
            id=f"discovery.gpu.{kind}",
            phases=("discovery",),
            bears_on=("speed-inside",),
            per="node",
            severity=Outcome.WARN,
            proves=f"no NVLink {did} since the driver was loaded",
            unit="count",
            rule="equals",
            expect=Fixed(0),
            needs=_ANSWERED,
            guide=guides.NVLINK_ERRORS,
        )
        for kind, did in (
            ("nvlink_replays", "had to send anything twice"),
            ("nvlink_crc_errors", "got anything damaged"),
        )
    ),
    Gate(
        id="discovery.gpu.fabric",
        phases=("discovery",),
        bears_on=("speed-inside",),
        per="node",
        proves="every GPU that belongs to an NVLink fabric has joined it",
        unit="text",
        rule="one_of",
        expect=Fixed(["completed", "not supported"]),
        needs=_ANSWERED,
        guide=guides.NVLINK,
    ),
    Gate(
        id="discovery.rdma.same",
        phases=("discovery",),
        bears_on=("over-the-fabric",),
        per="node",
        min_nodes=2,
        proves="all nodes have the same RDMA ports, in the same state, at the same rate, at the same NUMA nodes",
        unit="text",
        rule="all_equal",
        expect=Fleet(),
        decided_by=("discovery.rdma.active",),
        guide=guides.RDMA_PORTS,
    ),
    Gate(
        id="discovery.rdma.active",
        phases=("discovery",),
        bears_on=("over-the-fabric",),
        per="node",
        proves="as many RDMA ports as the profile says are ACTIVE, have a link, and run at its rate or faster",
        unit="count",
        rule="at_least",
        expect=FromProfile(),
        guide=guides.RDMA_PORTS,
    ),
    *(
        Gate(
            id=f"discovery.rdma.{kind}",
            phases=("discovery",),
            bears_on=("over-the-fabric",),
            per="node",
            proves=f"no RDMA port of the node has {what} more often than the profile allows",
            unit="count",
            rule="at_most",
            expect=FromProfile(),
            severity=Outcome.WARN,
            guide=guides.RDMA_COUNTERS,
        )
        for kind, what in (("flaps", "lost its link"), ("errors", "got anything damaged"))
    ),
    Gate(
        id="discovery.numa.gpu",
        phases=("discovery",),
        bears_on=("over-the-fabric",),
        per="node",
        proves="the NUMA node of every GPU is known, and the same on all nodes",
        unit="text",
        rule="all_equal",
        expect=Fleet(),
        decided_by=("discovery.gpu.count",),
        guide=guides.AFFINITY,
    ),
    Gate(
        id="discovery.topology",
        phases=("discovery",),
        bears_on=("over-the-fabric",),
        per="node",
        min_nodes=2,
        proves="GPUs and NICs are connected alike on all nodes (nvidia-smi topo -m)",
        unit="text",
        rule="all_equal",
        expect=Fleet(),
        decided_by=("discovery.topology.nic", "discovery.rdma.active", "discovery.gpu.answering"),
        guide=guides.AFFINITY,
    ),
    Gate(
        id="discovery.topology.nic",
        phases=("discovery",),
        bears_on=("over-the-fabric",),
        per="node",
        proves="every GPU reaches a NIC over a path that the profile allows (nvidia-smi topo -m)",
        unit="text",
        rule="one_of",
        expect=FromProfile(),
        guide=guides.AFFINITY,
    ),
)
