"""What stays on the screen of `bringup run`: a line a phase, with its outcome and its duration."""

import pytest
from bringup.records import Outcome, Step, Verdicts
from bringup.report.view import in_short
from bringup.run.playbook import _in_one_line
from factory import a_run, a_verdict


def test_a_phase_is_one_line_with_its_duration():
    step = Step(phase="smoke", folder="x", outcome=Outcome.FAIL, blocks=True, seconds=51.6)
    assert _in_one_line(step) == "FAIL          52 s  Smoke: scheduling, binding, shared filesystem"


def test_a_phase_that_did_not_run_is_not_shown_as_incomplete_work():
    step = Step(
        phase="smoke", folder=None, outcome=Outcome.INCOMPLETE, blocks=True, why_not_run="needs more", seconds=0
    )
    assert _in_one_line(step).startswith("NOT RUN ")


@pytest.mark.parametrize("noted", [False, True])
def test_a_phase_that_passed_leaves_one_line_unless_there_is_something_to_read(tmp_path, noted):
    notes = ["the kernel log of n1 could not be read"] if noted else []
    verdicts = Verdicts(
        phase="smoke",
        run="x",
        profile="p",
        outcome=Outcome.PASS,
        verdicts=[a_verdict("smoke.x", "n0", Outcome.PASS)],
        not_applicable=[],
        notes=notes,
    )
    shown = in_short(tmp_path, a_run("smoke"), verdicts).splitlines()
    assert shown[0].startswith("PASS       Smoke")
    assert (len(shown) > 1) is noted
