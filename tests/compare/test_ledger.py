"""Silent corruption: what was compared bit by bit, on what, and what no finding allows."""

from __future__ import annotations

import pytest
from bringup.compare import ledger
from bringup.judge import EVIDENCE, Judged
from bringup.plan.stand_ins import GPU
from bringup.records import Observation, Outcome
from factory import a_verdict, judged_of


def a_run(devices: dict[str, tuple[float | None, int]], *verdicts: tuple[str, Outcome]) -> Judged:
    """device -> (seconds that were compared, wrong values)."""
    facts = [
        Observation(quantity=quantity, value=value, unit=unit, subject=device, evidence="raw/sweep.jsonl:1")
        for device, (compared_s, wrong) in devices.items()
        for quantity, value, unit in ((ledger.SECONDS, compared_s, "s"), (ledger.WRONG, wrong, "count"))
        if value is not None
    ]
    held = [a_verdict(gate, "job", Outcome.PASS, "yes") for gate in EVIDENCE]
    return judged_of(
        *held, *(a_verdict(gate, "n0", outcome, "0") for gate, outcome in verdicts), observations=tuple(facts)
    )


def test_no_finding_in_3_hours_allows_one_an_hour():
    """The rule of three."""
    run = a_run({"n0/GPU-1": (5400, 0), "n0/GPU-2": (5400, 0)})
    (line,) = ledger.sentences(ledger.of([run]))
    assert line == (
        "silent corruption, GPU: 3 device-hours of 2 devices compared bit by bit, 0 findings; "
        "so at most one in 1 device-hours (95 %)"
    )


def test_a_finding_is_named_and_allows_more():
    (line,) = ledger.sentences(ledger.of([a_run({"n0/GPU-1": (36000, 7)})]))
    assert "1 findings (" in line
    assert "n0/GPU-1)" in line
    assert "at most one in 2.11 device-hours" in line


@pytest.mark.parametrize(
    ("device", "kind"), [("n0/task0", "CPU, not a GPU"), (f"n0/{GPU}0001", "simulated GPU"), ("n0/gpu0", "GPU")]
)
def test_it_says_on_what_it_was_compared(device: str, kind: str):
    (line,) = ledger.sentences(ledger.of([a_run({device: (2, 0)})]))
    assert line.startswith(f"silent corruption, {kind}: 2 device-seconds of 1 devices")


def test_runs_are_added_up_and_what_has_no_time_is_counted():
    sweep = a_run({"n0/task0": (1, 0)}, ("sweep.step.cpu", Outcome.PASS), ("nccl.wrong_values", Outcome.FAIL))
    old = a_run({"n0/task0": (None, 0)}, ("sweep.step.cpu", Outcome.PASS), ("sweep.step.cpu", Outcome.INCOMPLETE))
    lines = ledger.sentences(ledger.of([sweep, sweep, old]))
    assert lines[0].startswith("silent corruption, CPU, not a GPU: 2 device-seconds of 1 devices")
    assert (
        lines[1] == "compared besides, in verdicts: collectives 2, of which 2 differ; seeded steps 3, of which 0 differ"
    )


def test_nothing_compared_is_nothing_said():
    assert ledger.sentences(ledger.of([a_run({})])) == []
