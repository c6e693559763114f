"""The health check on a node compares as the judge does; a reason is read as it was written."""

from __future__ import annotations

import pytest
from bringup.errors import RuleError
from bringup.plan import rules
from bringup.records import Action
from bringup.report import reason
from health_for_tests import module
from loops import for_each

VALUES = [True, False, 0, 1, 2, 2.5, -1, "4: ACTIVE", "1", "", ["a"], [0, 2], 10**400]
LIMITS = [True, 0, 1, 2.0, "4: ACTIVE", [0, 2], ["4: ACTIVE", "x"], "1"]


@for_each("rule", rules.VALUE_RULES)
def test_both_compare_alike(rule: str):
    holds = module("baseline").holds
    compared = 0
    for value in VALUES:
        for limit in LIMITS:
            if (rule == "between" and limit != [0, 2]) or (rule == "one_of" and not isinstance(limit, list)):
                continue  # the judge refuses such a limit when a profile is read
            try:
                judge = rules.holds(rule, value, limit)
            except RuleError:
                judge = None
            try:
                node = holds(rule, value, limit)
            except (TypeError, OverflowError):
                node = None
            if judge is None and value == 10**400:
                continue  # too long a number for the judge; no probe counts so far
            assert node == judge, (rule, value, limit)
            compared += judge is not None
    assert compared >= 5


def test_the_actions_of_a_sites_check_are_those_of_the_catalogue():
    assert set(module("baseline").ACTIONS) == set(Action)


@pytest.mark.parametrize(
    ("text", "gates"),
    [
        ("bringup: discovery.gpu.count 1, expected 2; reboot (2026-11-23T02:00Z, run x)", ["discovery.gpu.count"]),
        ("bringup: a.b (x (y): z); reset (2026-11-23T02:00Z, run abc-1) [root@2026-11-23T02:00:01]", ["a.b"]),
    ],
)
def test_a_reason_of_ours_is_read(text: str, gates: list[str]):
    given = reason.read(text)
    assert given is not None
    assert given.gates == gates


@for_each("text", [None, "", "none", "Prolog error", "fan is loud", "bringup: x", "NHC: bringup: a.b; reset (x, y)"])
def test_a_reason_of_somebody_else_is_not_ours(text: str | None):
    assert reason.read(text) is None


@pytest.mark.parametrize("finding", ["discovery.gpu.count 1, expected 2", "é" * 300, "x" * 300, "a\nb; c (d)"])
def test_a_reason_is_short_and_is_read_as_it_was_written(finding: str):
    written = reason.written(finding, Action.RESET, "2026-11-23T02:00Z", "run a")
    assert len(written) <= reason.MOST
    given = reason.read(written)
    assert given is not None
    assert (given.action, given.date, given.by) == ("reset", "2026-11-23T02:00Z", "run a")
