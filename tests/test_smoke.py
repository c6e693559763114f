"""The smoke phase as a whole: what its gates say without evidence, and which numbers they need."""

import pytest
from bringup.evidence.parsed import Parsed
from bringup.judge import judge
from bringup.plan import profile
from bringup.plan.catalogue import of_phase
from bringup.records import Outcome
from factory import a_run


def test_without_evidence_nothing_of_the_phase_passes():
    run = a_run("smoke", ["n0", "n1", "n2"], gpus=3)
    verdicts = judge(run, profile.load("generic"), Parsed()).verdicts
    assert {verdict.gate for verdict in verdicts} == {gate.id for gate in of_phase("smoke")}
    assert {verdict.outcome for verdict in verdicts} == {Outcome.INCOMPLETE}


@pytest.mark.parametrize("name", ["local-cpu", "generic"])
def test_the_number_of_every_gate_is_declared_or_excluded(name):
    here = profile.load(name)
    open_ones = {
        gate.id
        for gate in of_phase("smoke")
        if gate.expect == "profile" and gate.id not in here.expect and here.reason_not_applicable(gate.id) is None
    }
    # no number holds for GPUs that nobody has named
    of_gpus = {"smoke.compute.tflops", "smoke.compute.device_to_device", "smoke.compute.device"}
    assert open_ones == (of_gpus if name == "generic" else set())
