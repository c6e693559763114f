"""What a run goes on without: nodes that failed discovery or smoke, and variants of NCCL whose hardware no node has."""

from dataclasses import dataclass, field
from typing import Any

from bringup.plan import planned, profile
from bringup.records import Observation, Outcome, Run, Verdict
from bringup.run.healthy_rest import lacking, unhealthy_nodes
from factory import a_run, a_verdict, judged_of
from loops import for_each

NODES = ("n0", "n1", "n2", "n3")


def fault(gate: str, subject: str, outcome: Outcome = Outcome.FAIL) -> Verdict:
    return a_verdict(gate=gate, subject=subject, outcome=outcome)


def left_out(*verdicts: Verdict, nodes: tuple[str, ...] = NODES) -> list[str] | None:
    unhealthy = unhealthy_nodes(judged_of(*verdicts, run=a_run("smoke", nodes)))
    return None if unhealthy is None else [entry.node for entry in unhealthy]


def test_a_run_in_which_nothing_is_wrong_leaves_nobody_out():
    assert left_out(fault("smoke.gpu.bound", "n0", Outcome.PASS)) == []


def test_a_fault_of_a_node_leaves_that_node_out_and_says_faults_before_gaps():
    unhealthy = unhealthy_nodes(
        judged_of(
            fault("smoke.node.ran_tasks", "n2", Outcome.INCOMPLETE),
            fault("smoke.gpu.bound", "n2"),
            fault("smoke.gpu.bound", "n0", Outcome.PASS),
            run=a_run("smoke", NODES),
        )
    )
    assert unhealthy is not None
    assert [(entry.node, entry.phase, entry.why) for entry in unhealthy] == [
        ("n2", "smoke", "smoke.gpu.bound fail; smoke.node.ran_tasks incomplete")
    ]


def test_pairs_that_one_node_explains_leave_that_node_out():
    """Its files are not seen by anybody: every pair with it fails."""
    pairs = [fault("smoke.fs.pair.write", f"n1->{other}") for other in ("n0", "n2", "n3")]
    assert left_out(*pairs) == ["n1"]
    assert left_out(*pairs, fault("smoke.gpu.bound", "n3")) == ["n1", "n3"]
    assert left_out(fault("smoke.gpu.bound", "n1"), *pairs) == ["n1"]


@for_each(
    "verdicts",
    [
        (fault("smoke.exit_code", "job"),),  # Slurm's own promise
        (fault("smoke.gpu.bound", "n0"), fault("smoke.exit_code", "job")),
        (fault("smoke.fs.pair.write", "n0->n1"),),  # one of two, and nobody knows which
        (fault("smoke.fs.pair.write", "n0->n1"), fault("smoke.fs.pair.created", "n2->n3")),
        tuple(fault("smoke.gpu.bound", node) for node in NODES[:3]),  # most nodes: not the nodes' fault
        (fault("smoke.gpu.bound", "n9"),),  # a node that took no part
        (fault("no.such.gate", "n0"),),
    ],
)
def test_what_no_minority_of_nodes_explains_stops_the_run(verdicts):
    assert left_out(*verdicts) is None


def test_half_of_the_nodes_may_go_on():
    assert left_out(fault("smoke.gpu.bound", "n1"), nodes=("n0", "n1")) == ["n1"]


def test_a_warning_leaves_nobody_out():
    assert left_out(fault("smoke.gpu.bound", "n1", Outcome.WARN)) == []


def test_the_slowest_pair_of_a_fleet_is_explained_by_the_node_that_is_slow_with_everybody():
    slowest = fault("nccl.pair.slowest", "job")
    assert left_out(fault("nccl.pair.node", "n2"), slowest) == ["n2"]
    assert left_out(slowest) is None
    assert left_out(fault("smoke.gpu.bound", "n2"), slowest) is None


# --- hardware that no node has

PAIR = ("n0", "n1")


@dataclass
class Discovery:
    """A discovery of two nodes with one GPU each."""

    observations: list[Observation]
    run: Run = field(default_factory=lambda: a_run("discovery", PAIR, gpus=1))


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
    discovery.run = a_run("discovery", PAIR, gpus=2)  # two of four GPUs say that they have none
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
