"""Silent corruption in `bringup history`: how long was compared bit by bit, on what, and what no finding allows."""

import pytest
from bringup.compare import history
from bringup.judge import EVIDENCE, Judged
from bringup.plan.stand_ins import GPU
from bringup.records import Observation, Outcome
from factory import a_verdict, judged_of


def a_run(devices: dict[str, tuple[float | None, int]], sound: Outcome = Outcome.PASS) -> Judged:
    """device -> (seconds that were compared, wrong values)."""
    facts = [
        Observation(quantity=quantity, value=value, unit=unit, subject=device, evidence="raw/sweep.jsonl:1")
        for device, (compared_s, wrong) in devices.items()
        for quantity, value, unit in ((history.COMPARED_S, compared_s, "s"), (history.WRONG, wrong, "count"))
        if value is not None
    ]
    return judged_of(*(a_verdict(gate, "job", sound, "yes") for gate in EVIDENCE), observations=tuple(facts))


def test_no_finding_in_3_hours_allows_one_an_hour():
    """The rule of three."""
    assert history.compared([a_run({"n0/GPU-1": (5400, 0), "n0/GPU-2": (5400, 0)})]) == (
        "silent corruption, compared bit by bit: GPUs: 3 device-hours, 0 findings, so at most one in 1 (95 %)"
    )


def test_a_finding_allows_more():
    assert "10 device-hours, 1 findings, so at most one in 2.11" in history.compared([a_run({"n0/GPU-1": (36000, 7)})])


@pytest.mark.parametrize(
    ("device", "kind"), [("n0/task0", "CPUs"), (f"n0/{GPU}0001", "simulated GPUs"), ("n0/gpu0", "GPUs")]
)
def test_it_says_on_what_it_was_compared(device, kind):
    assert f": {kind}: 1 device-hours" in history.compared([a_run({device: (3600, 0)})])


def test_runs_are_added_up_where_their_evidence_holds_and_the_time_is_known():
    runs = [a_run({"n0/task0": (3600, 0)})] * 2 + [a_run({"n0/task0": (None, 0)})]
    assert "CPUs: 2 device-hours" in history.compared([*runs, a_run({"n0/task0": (3600, 9)}, Outcome.FAIL)])
    assert history.compared([a_run({})]) == ""
