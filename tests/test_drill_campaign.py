"""Drills without a cluster: what counts as found, what as a false alarm, and what is told about it."""

import dataclasses
import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bringup import judge
from bringup import results as runs
from bringup.checks import catalogue as gates
from bringup.drill import elsewhere, perform, result
from bringup.drill import environment as ground
from bringup.drill import suite as campaign
from bringup.errors import DrillError, RecordError
from bringup.plan import profile
from bringup.plan.drill import Drill
from bringup.records import DrillReport, DrillResult, HealthyRound, Outcome, Verdict, read_record, write_record
from factory import a_verdict, judged_of
from pydantic import ValidationError
from showing import gates_shown_failing

TESTS = Path(__file__).parent
DRILL = Drill(
    id="d",
    fault="f",
    phase="discovery",
    gate="discovery.gpu.count",
    subject="n1",
    outcome=Outcome.FAIL,
    says="1",
    silent=("n0",),
    consequences=(("discovery.slurm.*", "n1"),),
)


def verdict(
    gate: str = DRILL.gate, subject: str = "n1", outcome: Outcome = Outcome.FAIL, observed: str = "1"
) -> Verdict:
    return a_verdict(gate, subject, outcome, observed)


HEALTHY = [verdict(subject="n0", outcome=Outcome.PASS)]
SCREEN = "FAIL discovery.gpu.count [n1]: observed 1"


def told(**change: Any) -> DrillResult:
    return DrillResult(
        **{
            "drill": "d",
            "fault": "f",
            "phase": "discovery",
            "gate": "g",
            "subject": "n1",
            "outcome": Outcome.FAIL,
            "performed": True,
            "detected": True,
            "right_subject": True,
            "right_cause": True,
            "observed": "1",
            "seconds_to_detect": 2.0,
            "seconds": 3.0,
            **change,
        }
    )


def report_of(*results: DrillResult, **change: Any) -> DrillReport:
    return DrillReport(
        **{
            "name": "r",
            "place": "local-cluster",
            "profile": None,
            "git_commit": None,
            "opened_at": "now",
            "planned": [one.drill for one in results],
            "healthy_planned": 0,
            "healthy_phases": [],
            "results": list(results),
            "healthy": [],
            **change,
        }
    )


# ---- the catalogue


def drilled() -> set[str]:
    """Those that need a fabric have been performed by nobody yet: their gates need a reason too."""
    here = [drill for drill in gates.DRILLS if drill.needs_expected is None]
    return {gate for drill in here for gate in (drill.gate, *(gate for gate, _ in drill.also))}


def test_every_gate_is_seen_to_fail_by_a_drill_or_says_why_not_and_where_else():
    listed = [gate for entry in gates.NO_DRILL for gate in entry.gates]
    assert set(gates.GATES) - drilled() - set(listed) == set(), "neither a drill nor a reason"
    assert drilled() & set(listed) == set(), "a drill and a reason why there is none"
    assert set(listed) <= set(gates.GATES)
    assert len(listed) == len(set(listed))


@pytest.mark.parametrize("test", sorted({entry.test for entry in gates.NO_DRILL}))
def test_a_gate_without_a_drill_is_shown_failing_by_the_test_that_it_names(test):
    """Each test that names a gate is held to it by conftest.py."""
    listed = {gate for entry in gates.NO_DRILL if entry.test == test for gate in entry.gates}
    assert listed - gates_shown_failing(TESTS / test) == set()


def test_there_are_eighty_drills_over_all_six_questions():
    assert len(gates.DRILLS) >= 80
    assert {gates.question_of(gates.GATES[drill.gate]) for drill in gates.DRILLS} == {1, 2, 3, 4, 5, 6}


@pytest.mark.parametrize("drill", gates.DRILLS, ids=lambda drill: drill.id)
def test_a_drill_is_declared_whole(drill: Drill):
    assert drill.where in ("anywhere", "local-cluster")
    assert drill.nodes in (2, 4)
    if drill.where == "anywhere":
        assert {command[0] for command in (*drill.inject, *drill.during, *drill.undo)} <= {"sh"}
        assert not drill.unconfined
    assert drill.says or drill.between is not None
    assert drill.says == drill.says.strip(), "whole words: behind a blank there is always another one"
    makes = (drill.inject, drill.during, drill.environment, drill.tamper, drill.truncate, drill.unconfined)
    assert any(makes), "it makes no fault"
    assert not (drill.tamper and drill.truncate)
    for gate, _ in drill.also:
        assert drill.phase in gates.GATES[gate].phases


# ---- what counts as found


@pytest.mark.parametrize("drill", gates.DRILLS, ids=[drill.id for drill in gates.DRILLS])
def test_the_folder_of_all_runs_is_a_word_of_its_own_and_no_part_of_a_script(drill: Drill):
    """A path with a space broke the scripts of path-full and stale-copy."""
    for command in (*drill.inject, *drill.during, *drill.undo):
        scripts = [script for option, script in pairwise(command) if option in ("-c", "-euc")]
        assert not any("{results}" in script for script in scripts)


def test_the_declared_verdict_is_found():
    assert perform.compare(DRILL, [*HEALTHY, verdict()], SCREEN) == (True, True, True, "1")


def test_a_verdict_that_the_screen_does_not_show_is_not_noticed():
    assert perform.compare(DRILL, [verdict()], "all is well")[0] is False


def test_a_screen_that_tells_several_together_or_leaves_them_to_the_report_has_told_them():
    one = verdict().model_copy(update={"cause": "no evidence arrived"})
    assert perform.compare(DRILL, [one], "[n1]: no evidence arrived (9 gates: …)")[0] is True
    assert perform.compare(DRILL, [one], "  … and 4 more in the report")[0] is True
    assert perform.compare(DRILL, [one], "[n0]: no evidence arrived (9 gates: …)")[0] is False


def test_a_pair_that_the_screen_tells_with_others_is_told():
    one = verdict("smoke.fs.pair.write", "n1->n2", observed="no")
    told = "smoke.fs.pair.write [n0->n1]: observed no, expected yes (6 pairs, all with n1: n0->n1, n0->n3, …)"
    assert perform._is_on(told, one)
    assert not perform._is_on(told, one.model_copy(update={"gate": "smoke.fs.pair.append"}))


def test_the_wrong_subject_is_no_success():
    detected, right_subject, right_cause, observed = perform.compare(
        DRILL, [verdict(subject="n0")], "discovery.gpu.count [n0]"
    )
    assert (detected, right_subject, right_cause, observed) == (True, False, False, None)


def test_accusing_an_innocent_beside_the_culprit_is_the_wrong_subject():
    assert perform.compare(DRILL, [verdict(), verdict(subject="n0")], SCREEN)[1] is False


def test_another_outcome_is_not_the_declared_one():
    assert perform.compare(DRILL, [verdict(outcome=Outcome.INCOMPLETE)], SCREEN)[:2] == (False, False)


def test_a_verdict_without_the_declared_words_has_the_wrong_cause():
    assert perform.compare(DRILL, [verdict(observed="0")], SCREEN)[:3] == (True, True, False)


@pytest.mark.parametrize(
    ("says", "observed", "right"),
    [
        ("1", "16521216", False),
        ("1", "1 (nvidia0)", True),
        ("at 0.0", "at 0.04 GB/s", False),
        ("at 0.0…", "at 0.04 GB/s", True),
        ("TaskPlugin = …", "no (TaskPlugin = task/none)", True),
        ("TaskPlugin = …", "no (TaskPlugin = (null))", True),
        ("no", "none", False),
        ("1", "0.1 x", False),
        ("1", "0 (char 195:1)", False),
        ("None", "7", False),
    ],
)
def test_declared_words_are_whole_words(says, observed, right):
    drill = dataclasses.replace(DRILL, says=says)
    assert perform.compare(drill, [verdict(observed=observed)], SCREEN)[2] is right


@pytest.mark.parametrize(
    ("observed", "right"), [("2.1e+05 us", True), ("35 us", False), ("-2e+05 us", False), ("late", False)]
)
def test_a_number_has_the_size_of_the_fault(observed, right):
    drill = dataclasses.replace(DRILL, says="", between=(1e5, 1e6))
    assert perform.compare(drill, [verdict(observed=observed)], SCREEN)[2] is right


def test_a_sign_in_a_log_is_a_cause_too():
    drill = dataclasses.replace(DRILL, says="slurm.out-of-memory")
    assert perform.compare(drill, [verdict()], SCREEN)[2] is False
    assert perform.compare(drill, [verdict()], SCREEN, ["slurm.out-of-memory"])[2] is True


def test_a_fault_that_is_survived_must_be_said_and_pass():
    drill = Drill(
        id="d", fault="f", phase="discovery", gate="run.closed", subject="job", outcome=Outcome.PASS, says="no answer"
    )
    passed = [verdict("run.closed", "job", Outcome.PASS)]
    assert perform.compare(drill, passed, "… job 1: no answer") == (True, True, True, "… job 1: no answer")
    assert perform.compare(drill, passed, "silence")[0] is False
    assert perform.compare(drill, [verdict("run.closed", "job")], "no answer")[1] is False


# ---- false alarms


def test_a_failure_that_the_fault_does_not_explain_is_a_false_alarm():
    assert perform.false_alarms(DRILL, [*HEALTHY, verdict()]) == []
    alarms = perform.false_alarms(
        DRILL, [*HEALTHY, verdict(), verdict("discovery.shm"), verdict("discovery.nofile", "n1", Outcome.WARN)]
    )
    assert [alarm.split(":")[0] for alarm in alarms] == ["discovery.shm [n1] fail", "discovery.nofile [n1] warn"]


def test_what_failed_before_the_fault_is_no_alarm():
    known = frozenset({("discovery.shm", "n1"), ("discovery.nofile", "n0")})
    verdicts = [*HEALTHY, verdict(), verdict("discovery.shm"), verdict("discovery.nofile", "n0", Outcome.INCOMPLETE)]
    assert len(perform.false_alarms(DRILL, verdicts)) == 2
    assert perform.false_alarms(DRILL, verdicts, known) == []


def test_a_declared_consequence_is_none():
    assert perform.false_alarms(DRILL, [*HEALTHY, verdict(), verdict("discovery.slurm.gres", "n1")]) == []
    assert perform.false_alarms(DRILL, [*HEALTHY, verdict(), verdict("discovery.slurm.gres", "n0")]) != []


def test_a_subject_that_must_be_silent_has_to_pass_and_to_be_heard_of():
    assert perform.false_alarms(DRILL, [verdict()]) == ["nothing was said about n0"]
    assert len(perform.false_alarms(DRILL, [verdict(), verdict("discovery.shm", "n0", Outcome.INCOMPLETE)])) == 1


# ---- what is told


def test_exit_codes():
    assert result.exit_code(report_of(told())) == 0
    assert result.exit_code(report_of(told(right_subject=False))) == 1
    assert result.exit_code(report_of(told(false_alarms=["x"]))) == 1
    not_done = perform.not_performed(DRILL, "no cluster")
    assert result.exit_code(report_of(told(), not_done)) == 2
    assert result.exit_code(report_of(told(detected=False), not_done)) == 1
    assert result.exit_code(report_of(told(), perform.not_performed(DRILL, "no fabric", applicable=False))) == 0
    assert result.exit_code(report_of(perform.not_performed(DRILL, "no fabric", applicable=False))) == 2
    assert result.exit_code(report_of(told(), planned=["d", "e"])) == 2
    assert result.exit_code(report_of()) == 2


def test_a_healthy_round_with_an_alarm_is_a_failure():
    quiet = HealthyRound(number=1, verdicts=200, false_alarms=[], seconds=1, evidence=[])
    assert result.exit_code(report_of(healthy=[quiet], healthy_planned=1)) == 0
    assert result.exit_code(report_of(healthy=[quiet], healthy_planned=2)) == 2
    assert (
        result.exit_code(report_of(healthy=[quiet.model_copy(update={"false_alarms": ["x"]})], healthy_planned=1)) == 1
    )


def test_a_healthy_round_keeps_the_evidence_of_every_phase(tmp_path, monkeypatch):
    """The phases 1 to 3 of one playbook have one name: kept in one folder, each replaced the one before."""
    stems = ("discovery", "smoke")
    homes = {stem: tmp_path / "results" / stem / "d-round-1" for stem in stems}
    for home in homes.values():
        home.mkdir(parents=True)
    monkeypatch.setattr(ground, "PLAYBOOKS", tmp_path / "playbooks")
    monkeypatch.setattr(runs, "attempts", lambda phase, name: [homes[phase.stem]])
    monkeypatch.setattr(perform, "_last_attempt", lambda stem, name: homes[stem])
    monkeypatch.setattr(judge, "judge_folder", lambda folder: judged_of(verdict(outcome=Outcome.PASS)))
    here = SimpleNamespace(bringup=lambda *words, environment, phases: ground.Ended(0, "", ""))
    one = perform.healthy_round(1, stems, here, tmp_path / "kept", name="d")
    assert (one.verdicts, one.false_alarms) == (2, [])
    assert all((tmp_path / "kept/round-1" / stem / "d-round-1").is_dir() for stem in stems)


def test_totals_count_what_was_performed_and_say_what_was_not():
    done = report_of(
        told(), told(drill="e", right_cause=False, seconds_to_detect=4.0), perform.not_performed(DRILL, "w")
    )
    assert result.totals(done) == (
        "2 of 2 drills detected; 2 on the right subject; 1 with the right cause; 0 false alarms elsewhere; "
        "median 3 s to detect; 1 not performed"
    )


def test_what_a_log_says_is_no_markup_in_the_reports():
    done = report_of(told(observed="<script>alert(1)</script> | `x`", false_alarms=["<img src=x>"]))
    assert "<script" not in result.page(done)
    assert "<img" not in result.page(done)
    assert "<script" not in result.markdown(done)
    assert "\\|" in result.markdown(done)


def test_a_result_without_what_was_seen_or_why_not_is_refused():
    with pytest.raises(ValidationError, match="needs what was seen"):
        told(detected=None)
    with pytest.raises(ValidationError, match="why it was not"):
        told(performed=False, detected=None, right_subject=None, right_cause=None, seconds_to_detect=None)


def test_the_record_is_strict(tmp_path):
    write_record(tmp_path / "drill.json", report_of(told()))
    assert read_record(tmp_path / "drill.json", DrillReport) == report_of(told())
    text = json.loads((tmp_path / "drill.json").read_text())
    (tmp_path / "drill.json").write_text(json.dumps(text | {"extra": 1}))
    with pytest.raises(RecordError, match="extra"):
        read_record(tmp_path / "drill.json", DrillReport)


def test_drills_of_one_shape_are_performed_together():
    shapes = [campaign.shape_of(drill) for drill in campaign._in_order(gates.DRILLS)]
    changes = sum(one != other for one, other in pairwise(shapes))
    assert changes == len(set(shapes)) - 1 == 2


# ---- elsewhere


def test_ranks_and_nodes_are_called_as_the_cluster_calls_them():
    drill = next(drill for drill in gates.DRILLS if drill.id == "wrong-value")
    there = elsewhere.on_nodes(drill, ("gpu01", "gpu02"), 8)
    assert there.subject == "gpu02/rank8"
    assert dict(there.environment)["BRINGUP_DRILL"] == "wrong-value:8"
    assert there.silent == ("gpu01/rank0", "gpu01/rank1", "gpu02/rank9")


def test_a_count_of_the_declared_cluster_is_not_asked_of_another():
    drill = next(drill for drill in gates.DRILLS if drill.id == "task-lost")
    assert drill.says == "1"
    assert elsewhere.on_nodes(drill, ("a", "b"), 8).says == ""
    assert elsewhere.on_nodes(drill, ("a", "b"), 2).says == "1"


def test_what_is_no_rank_and_no_node_stays():
    drill = next(drill for drill in gates.DRILLS if drill.id == "curve-dip")
    there = elsewhere.on_nodes(drill, ("a", "b"), 8)
    assert there.environment == drill.environment
    assert there.subject == "2-nodes"


def test_a_size_is_asked_for_by_its_place_and_is_another_one_on_gpus(monkeypatch):
    """4MiB is not measured on GPUs, and 16MiB is not the largest there."""
    monkeypatch.syspath_prepend(TESTS.parent / "infrastructure-validation/probes")
    import bench
    import collectives

    engines = {"here": collectives.CPU_SIZES, "on GPUs": collectives.GPU_SIZES}
    found = {}
    for drill in (
        one for one in gates.DRILLS if dict(one.environment).get("BRINGUP_DRILL", "").startswith("slow-size")
    ):
        monkeypatch.setenv("BRINGUP_DRILL", dict(drill.environment)["BRINGUP_DRILL"])
        found[drill.id] = {engine: bench.slowed(sizes) for engine, sizes in engines.items()}
        there = elsewhere.on_nodes(drill, ("a", "b"), 8)
        assert there.environment == drill.environment
        name, _, size = str(found[drill.id]["here"]).partition("@")
        if drill.id != "latency":
            assert (drill.says, there.says) == (f"{name} at {size}", f"{name} at")
    assert found == {
        "curve-dip": {"here": "all_reduce@4MiB", "on GPUs": "all_reduce@64MiB"},
        "curve-falls": {"here": "broadcast@16MiB", "on GPUs": "broadcast@8GiB"},
        "latency": {"here": "all_reduce@8KiB", "on GPUs": "all_reduce@8KiB"},
    }
    monkeypatch.setenv("BRINGUP_DRILL", "slow-rank:1")
    assert bench.slowed(collectives.CPU_SIZES) is None


def test_a_step_is_kept_with_its_rank():
    drill = next(drill for drill in gates.DRILLS if drill.id == "rank-killed")
    assert dict(elsewhere.on_nodes(drill, ("a", "b"), 4).environment)["BRINGUP_DRILL"] == "kill-rank:5@4"


def test_a_drill_that_would_mean_nothing_says_why():
    generic, local = profile.load("generic"), profile.load("local-cpu")
    by_id = {drill.id: drill for drill in gates.DRILLS}
    assert "local cluster only" in str(elsewhere.why_not(by_id["node-off"], local, 4, 2))
    assert "4 nodes" in str(elsewhere.why_not(by_id["slow-matmul"], local, 2, 2))
    assert "declares no" in str(elsewhere.why_not(by_id["latency"], generic, 2, 2))
    assert "not applicable" in str(elsewhere.why_not(by_id["nic-left-out"], local, 2, 2))
    assert "of nccl.transport" in str(elsewhere.why_not(by_id["infiniband-left-out"], local, 2, 2))
    h100 = profile.load("h100-8x400g")
    assert elsewhere.why_not(by_id["infiniband-left-out"], h100, 2, 8) is None
    assert elsewhere.why_not(by_id["wrong-value"], local, 2, 2) is None


def test_nothing_but_commands_of_the_login_host_is_made_on_a_real_cluster():
    here = ground.Here(("a", "b"))
    here.make((("sh", "true"),))
    with pytest.raises(DrillError, match="local one only"):
        here.make((("on", "n1", "true"),))
