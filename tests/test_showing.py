"""A test that names a gate must show it failing (showing.py, conftest.py); loops.py names each row that fails."""

import pytest
from bringup.kernel import judge
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan import profile
from factory import a_run
from loops import for_each
from showing import shows_failing


def judged_as(gate: str, value: object) -> None:
    parsed = Parsed()
    parsed.saw(gate, "job", value, "flag", "e")
    judge.judge(a_run(plan={gate: ["job"]}), profile.load("local-cpu"), parsed)


MISSED = pytest.mark.xfail(strict=True, raises=AssertionError, reason="it was not judged so")


@shows_failing("run.closed")
@pytest.mark.parametrize("value", [False, *(pytest.param(value, marks=MISSED) for value in (True, None))])
def test_a_gate_that_passed_or_is_incomplete_was_not_shown_failing(value):
    judged_as("run.closed", value)


def test_every_row_that_does_not_hold_is_named():
    @for_each((1, "1"), (2, "x"), (3, "3"), (4, "4"))
    def reads(number, text):
        assert int(text) == number
        with pytest.raises(ZeroDivisionError):
            number // (number - 4)

    with pytest.raises(AssertionError, match=r"(?s)^3 of 4 rows\n1, .*Failed: .*\n2, 'x': ValueError: .*\n3, '3': F"):
        reads()
