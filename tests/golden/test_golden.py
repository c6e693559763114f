"""Verdicts of recorded runs, and the catalogue, are as stored in expected/. README.md: how a change is accepted."""

import golden_verdicts as golden
from loops import for_each


@for_each("name", golden.recordings())
def test_recorded_runs_are_judged_as_they_were(name: str):
    assert list(golden.differences(golden.stored(name).facts, golden.golden_of(name).facts)) == []


def test_a_difference_is_one_line():
    before = {"run gate [n0]": {"outcome": "pass", "value": 1}, "run gate [n1]": {"outcome": "pass", "value": True}}
    after = {"run gate [n0]": {"outcome": "pass", "value": 1.0}, "run gate [n2]": {"outcome": "pass", "value": True}}
    assert list(golden.differences(before, after)) == [
        "run gate [n0]: value 1 -> 1.0",
        "run gate [n1]: is gone",
        "run gate [n2]: is new",
    ]
