"""The baseline of the health check: what a passed run of discovery showed, and nothing that an update changes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from bringup.cli import main
from bringup.health import baseline
from bringup.health.records import Asked, Baseline
from bringup.kernel import judge
from bringup.kernel.errors import RuleError, RunError
from bringup.kernel.judge import Judged
from bringup.kernel.plan import rules
from bringup.kernel.records import Action, Observation
from bringup.report import drain
from factory import a_verdict, judged_of
from health_for_tests import module
from loops import case_for_each, for_each
from runs_for_tests import discovery


@pytest.fixture
def passed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Judged:
    return judge.judge_folder(discovery(tmp_path, monkeypatch))


def asked(judged: Judged) -> dict[str, Asked]:
    (group,) = baseline.made_of([judged]).groups
    return {entry.quantity: entry for entry in group.asked}


def test_it_asks_what_the_run_showed_and_for_no_version(passed: Judged):
    asked_facts = asked(passed)
    assert (asked_facts["discovery.gpu.count"].limit, asked_facts["discovery.gpu.count"].rule) == (2, "equals")
    assert asked_facts["discovery.kernel_log.xid"].limit == 0
    assert asked_facts["inventory.folder.tmp.writes"].limit == "works"
    low, high = asked_facts["inventory.memory"].limit
    assert low < high
    assert asked_facts["discovery.cpu.count"].action == "inspect"
    assert not set(asked_facts) & {"discovery.kernel", "discovery.os", "discovery.gpu.driver", "discovery.python"}
    events = baseline.made_of([passed]).driver_events
    assert (events["xid_79"], events["xid_31"]) == ("reboot the node", None), "what the catalogue says of an event"


def test_a_port_that_is_up_on_all_nodes_has_to_stay_up(passed: Judged):
    def port(node: str, name: str, state: str) -> Observation:
        how = {"value": state, "unit": "text", "evidence": "raw/x:1"}
        return Observation(quantity="discovery.rdma.state", subject=f"{node}/{name}:1", **how)

    up = [port(node, name, baseline.UP) for node in ("n0", "n1") for name in ("mlx5_0", "mlx5_1")]
    half = [port("n0", "mlx5_2", baseline.UP), port("n1", "mlx5_2", "1: DOWN")]
    asked_facts = asked(replace(passed, observations=[*passed.observations, *up, *half]))
    assert asked_facts["discovery.rdma.state"].parts == ["mlx5_0:1", "mlx5_1:1"]


def test_memory_that_one_of_two_nodes_told_is_asked_of_none(passed: Judged):
    observations = [fact for fact in passed.observations if (fact.quantity, fact.subject) != ("inventory.memory", "n1")]
    assert len(observations) == len(passed.observations) - 1
    assert "inventory.memory" not in asked(replace(passed, observations=observations))


def test_the_driver_log_is_asked_for_though_a_user_could_not_read_it(passed: Judged):
    """The health check runs as root."""
    verdicts = [
        verdict.model_copy(update={"outcome": "incomplete"}) if verdict.gate == "discovery.kernel_log.xid" else verdict
        for verdict in passed.verdicts.verdicts
    ]
    asked_facts = asked(replace(passed, verdicts=passed.verdicts.model_copy(update={"verdicts": verdicts})))
    assert asked_facts["discovery.kernel_log.xid"].limit == 0


def test_a_folder_that_an_automounter_has_not_mounted_is_not_asked_for(passed: Judged):
    assert "discovery.mount" in asked(passed)
    unmounted = [
        seen.model_copy(update={"value": "autofs auto.home rw"}) if seen.quantity == "discovery.mount" else seen
        for seen in passed.observations
    ]
    assert "discovery.mount" not in asked(replace(passed, observations=unmounted))


def test_a_run_that_did_not_pass_is_no_baseline():
    with pytest.raises(RunError, match=r"discovery\.gpu\.count \[n1\] is fail"):
        baseline.made_of([judged_of(a_verdict())])
    with pytest.raises(RunError, match="none of these is a run of discovery"):
        baseline.made_of([])


def test_the_verb_writes_a_new_file_and_over_another_by_force_alone(passed: Judged, tmp_path: Path, shown, refused):
    file = tmp_path / "a baseline.json"
    assert "2 nodes" in shown(0, "site-baseline", passed.folder, "-o", file)
    assert Baseline.model_validate_json(file.read_text()).groups[0].nodes == ["n0", "n1"]
    file.write_text(json.dumps({"somebody": "else's"}))
    assert "a baseline.json" in refused("site-baseline", passed.folder, "-o", file)
    assert main(["site-baseline", str(passed.folder), "-o", str(file), "--force"]) == 0


# --- the health check on a node compares as the judge does; a reason is read as it was written


VALUES = [True, False, 0, 1, 2, 2.5, -1, "4: ACTIVE", "1", "", ["a"], [0, 2], 10**400]
LIMITS = [True, 0, 1, 2.0, "4: ACTIVE", [0, 2], ["4: ACTIVE", "x"], "1"]


@for_each(*rules.VALUE_RULES)
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


@case_for_each(
    ("bringup: discovery.gpu.count 1, expected 2; reboot (2026-11-23T02:00Z, run x)", ["discovery.gpu.count"]),
    ("bringup: a.b (x (y): z); reset (2026-11-23T02:00Z, run abc-1) [root@2026-11-23T02:00:01]", ["a.b"]),
)
def test_a_reason_of_ours_is_read(text: str, gates: list[str]):
    given = drain.read_reason(text)
    assert given.gates == gates


@for_each(None, "", "none", "Prolog error", "fan is loud", "bringup: x", "NHC: bringup: a.b; reset (x, y)")
def test_a_reason_of_somebody_else_is_not_ours(text: str | None):
    assert drain.read_reason(text) is None


@pytest.mark.parametrize("finding", ["discovery.gpu.count 1, expected 2", "é" * 300, "x" * 300, "a\nb; c (d)"])
def test_a_reason_is_short_and_is_read_as_it_was_written(finding: str):
    written = drain.reason_of(finding, Action.RESET, "2026-11-23T02:00Z", "run a")
    assert len(written) <= drain.MOST_OF_A_REASON
    given = drain.read_reason(written)
    assert (given.action, given.date, given.by) == ("reset", "2026-11-23T02:00Z", "run a")
