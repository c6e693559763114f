"""A cluster without perftest: its ports stay unproven, and no node is left out of the trainings for that."""

import pytest
from bringup import judge
from bringup.plan.catalogue import GATES
from bringup.records import Kind, Outcome
from bringup.run.healthy_rest import unhealthy_nodes
from factory import a_run, a_verdict, judged_of

RAILS = sorted(
    gate.id
    for gate in GATES.values()
    if gate.id.startswith(("fabric.rail.", "fabric.loopback")) and gate.severity is Outcome.FAIL
)


def subject(gate: str) -> str:
    return "n1" if GATES[gate].per == "node" else "job"


@pytest.mark.parametrize("gate", RAILS)
def test_a_port_that_was_not_tested_stops_nothing_and_one_that_failed_does(gate: str) -> None:
    unproven = a_verdict(gate, subject(gate), Outcome.INCOMPLETE, "nothing", kind=Kind.ABSENT)
    failed = a_verdict(gate, subject(gate), Outcome.FAIL, "0.4")
    assert not judge.stops(unproven)
    assert judge.stops(failed)


def test_a_node_without_perftest_is_not_left_out() -> None:
    run = a_run("nccl_pairwise", ("n0", "n1", "n2", "n3"), plan={})
    missing = [a_verdict(gate, subject(gate), Outcome.INCOMPLETE, "nothing", kind=Kind.ABSENT) for gate in RAILS]
    assert unhealthy_nodes(judged_of(*missing, run=run)) == []
