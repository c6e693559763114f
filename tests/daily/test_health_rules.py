"""The health check on a node compares as the judge does, and its reasons are read as they were written."""

from __future__ import annotations

import pytest
from bringup.errors import RuleError
from bringup.plan import rules
from bringup.records import Action
from bringup.report import reason
from hooks_for_tests import GPUS, a_baseline, module
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


@pytest.mark.parametrize(
    ("text", "gates", "passes"),
    [
        (
            "bringup: discovery.gpu.count 1, expected 2; reboot (2026-11-23T02:00Z, health-check)",
            ["discovery.gpu.count"],
            None,
        ),
        ("bringup: a.b (x (y): z); reset (2026-11-23T02:00Z, run abc-1) [root@2026-11-23T02:00:01]", ["a.b"], None),
        (
            "bringup: passes again 2026-11-23T03:00Z, was a.b; reset (2026-11-23T02:00Z, prolog)",
            ["a.b"],
            "2026-11-23T03:00Z",
        ),
    ],
)
def test_a_reason_of_ours_is_read(text: str, gates: list[str], passes: str | None):
    reason_given = reason.read(text)
    assert reason_given is not None
    assert (reason_given.gates, reason_given.passes_since) == (gates, passes)


@for_each("text", [None, "", "none", "Prolog error", "fan is loud", "bringup: x", "NHC: bringup: a.b; reset (x, y)"])
def test_a_reason_of_somebody_else_is_not_ours(text: str | None):
    assert reason.read(text) is None


@pytest.mark.parametrize("finding", ["discovery.gpu.count 1, expected 2", "é" * 300, "x" * 300, "a\nb; c (d)"])
def test_node_and_report_write_one_form(finding: str, monkeypatch: pytest.MonkeyPatch):
    reasons = module("told")
    baseline = a_baseline(GPUS).model_dump(mode="json")
    gate, _, words = finding.partition(" ")
    monkeypatch.setattr(reasons.time, "strftime", lambda form, when: "2026-11-23T02:00Z")
    on_node = reasons.reason_of(baseline, [{"gate": gate, "words": words, "action": "reset"}], "health-check")
    whole = f"{gate} {words}"
    assert on_node == reason.written(whole, Action.RESET, "2026-11-23T02:00Z", "health-check")
    assert len(on_node) <= reason.MOST
    assert reason.read(on_node) is not None
