"""What stays on the screen of `bringup run`: a line a phase, with its outcome and its duration."""

from bringup.records import Outcome, Step
from bringup.run.playbook import _in_one_line


def test_a_phase_is_one_line_with_its_duration():
    step = Step(phase="smoke", folder="x", outcome=Outcome.FAIL, blocks=True, seconds=51.6)
    assert _in_one_line(step) == "FAIL          52 s  Smoke: scheduling, binding, shared filesystem"


def test_a_phase_that_did_not_run_is_not_shown_as_incomplete_work():
    step = Step(
        phase="smoke", folder=None, outcome=Outcome.INCOMPLETE, blocks=True, why_not_run="needs more", seconds=0
    )
    assert _in_one_line(step).startswith("NOT RUN ")
