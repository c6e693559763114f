"""Drills without a cluster: what counts as found, what as a false alarm, and what is told about it."""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import everywhere
import pytest
from bringup.drill import catalogue as drills
from bringup.drill import environment, perform, result
from bringup.drill import suite as campaign
from bringup.drill.catalogue import Drill, Shape
from bringup.drill.suite import why_not
from bringup.kernel.errors import DrillError
from bringup.kernel.plan import catalogue as gates
from bringup.kernel.plan import profile
from bringup.kernel.records import Outcome, Sign, Value, Verdict, Verdicts, grouped
from bringup.kernel.results import REPOSITORY
from bringup.report import view
from bringup.report.campaigns import DrillReport, DrillResult
from factory import a_drill_report, a_drill_result, a_verdict, judged_of
from loops import case_for_each, for_each
from pydantic import ValidationError
from showing import gates_shown_failing

TESTS = Path(__file__).resolve().parents[1]
COUNT = {"phase": "discovery", "gate": "discovery.gpu.count", "subject": "n1", "outcome": Outcome.FAIL, "value": 1}
DRILL = Drill(id="d", fault="f", **COUNT, silent=("n0",), consequences=(("discovery.slurm.*", "n1"),))


def verdict(
    gate: str = DRILL.gate, subject: str = "n1", outcome: Outcome = Outcome.FAIL, value: Value = 1, **rest: Any
) -> Verdict:
    return a_verdict(gate, subject, outcome, rest.pop("observed", str(value)), value=value, **rest)


def verdicts_of(*verdicts: Verdict, signs: tuple[str, ...] = ()) -> Verdicts:
    judged = judged_of(*verdicts).verdicts
    seen = [Sign(signature=name, evidence="raw/x.log:1", line="x", count=1) for name in signs]
    return judged.model_copy(update={"signs": seen})


def judged_as(drill: Drill, *verdicts: Verdict, signs: tuple[str, ...] = ()) -> tuple[bool, bool, bool, str | None]:
    """The run left these verdicts, and they are those that are judged."""
    judged = verdicts_of(*verdicts, signs=signs)
    return perform.compare(drill, judged, judged)


HEALTHY = [verdict(subject="n0", outcome=Outcome.PASS)]


# ---- the catalogue


def test_every_gate_is_seen_to_fail_by_a_drill_or_says_why_not_and_where_else():
    """Drills that need a fabric have been performed by nobody yet: their gates need a reason too. Nothing fails of a
    fault that is survived."""
    here = [drill for drill in drills.DRILLS if drill.needs_expected is None and drill.outcome is not Outcome.PASS]
    drilled = {gate for drill in here for gate in (drill.gate, *(gate for gate, _ in drill.also))}
    listed = {gate.id for gate in gates.GATES.values() if gate.no_drill is not None}
    assert set(gates.GATES) - drilled - listed == set(), "neither a drill nor a reason"
    assert drilled & listed == set(), "a drill and a reason why there is none"


def test_a_gate_without_a_drill_is_shown_failing_by_the_test_that_it_names():
    """Each test that names a gate is held to it by conftest.py."""
    reasons = [(gate.id, gate.no_drill.test) for gate in gates.GATES.values() if gate.no_drill is not None]
    for test, listed in grouped((test, gate) for gate, test in reasons).items():
        assert set(listed) - gates_shown_failing(TESTS / test) == set(), test


def test_drills_are_over_all_six_questions_and_each_has_a_name_of_its_own():
    assert len(drills.DECLARED) >= 230
    assert {gates.question_of(gates.GATES[drill.gate]) for drill in drills.DRILLS} == {1, 2, 3, 4, 5, 6}


def test_a_drill_is_declared_whole():
    for drill in drills.DRILLS:
        if drill.where == "anywhere":
            assert {command[0] for command in (*drill.inject, *drill.during, *drill.undo)} <= {"sh"}, drill.id
            assert not drill.shape.unconfined, drill.id
        assert drill.says or drill.between is not None or drill.value is not None, drill.id
        assert drill.says == drill.says.strip(), f"{drill.id}: behind a blank there is always another word"
        makes = (drill.inject, drill.during, drill.environment, drill.tamper, drill.shape.unconfined)
        assert any(makes), f"{drill.id} makes no fault"
        for gate in (drill.gate, *(gate for gate, _ in drill.also)):
            assert drill.phase in gates.GATES[gate].phases, f"{drill.id}: {gate}"


# ---- what counts as found


def test_the_folder_of_all_runs_is_a_word_of_its_own_and_no_part_of_a_script():
    """A path with a space broke the scripts of path-full and stale-copy."""
    for drill in drills.DRILLS:
        for command in (*drill.inject, *drill.during, *drill.undo):
            scripts = [script for option, script in pairwise(command) if option in ("-c", "-euc")]
            assert not any("{results}" in script for script in scripts), drill.id


def test_a_verdict_that_the_run_did_not_leave_for_its_user_is_not_noticed():
    """It is there when the folder is judged again; nobody who ran the phase saw it."""
    judged = verdicts_of(verdict())
    assert perform.compare(DRILL, judged, None)[0] is False
    assert perform.compare(DRILL, judged, verdicts_of(*HEALTHY))[0] is False
    assert perform.compare(DRILL, judged, judged)[0] is True


def test_a_verdict_that_the_screen_tells_with_others_or_leaves_to_the_report_is_noticed():
    """A warning stands behind all that is incomplete, because the drill leaves the other parts of its phase out."""
    drill = DRILL.model_copy(update=dict(outcome=Outcome.WARN))
    warned = verdict(outcome=Outcome.WARN)
    numbers = map(str, range(view.MAX_LISTED))
    others = [verdict(f"discovery.{number}", "n0", Outcome.INCOMPLETE, cause=number) for number in numbers]
    assert judged_as(drill, *others[1:], warned)[0] is True
    assert judged_as(drill, *others, warned)[0] is True
    missing = [verdict(gate, outcome=Outcome.INCOMPLETE, cause="no evidence arrived") for gate in ("a", "b", "c")]
    culprit = verdict(outcome=Outcome.INCOMPLETE, cause="no evidence arrived")
    silent = drill.model_copy(update=dict(outcome=Outcome.INCOMPLETE, value=None))
    assert judged_as(silent, *missing, culprit)[0] is True


def of(value: Value = 1, outcome: Outcome = Outcome.FAIL, **rest: Any) -> Verdict:
    return verdict(value=value, outcome=outcome, **rest)


@for_each(
    ({}, [*HEALTHY, of()], (True, True, True)),
    ({}, [of(subject="n0")], (True, False, False)),
    ({}, [of(), of(subject="n0")], (True, False, True)),  # an innocent beside the culprit
    ({}, [of(outcome=Outcome.INCOMPLETE)], (False, False, False)),
    *(
        ({"value": declared}, [of(value)], (True, True, right))
        for declared, value, right in (
            *((1, 1, True), (1, 1.0, True), (1, 0, False), (1, True, False)),  # a flag is not a count
            *((0, False, False), (False, False, True), (False, "no", False), ("no", "no", True)),
        )
    ),
    *(
        ({"value": None, "says": says}, [shown], (True, True, right))
        for says, words, right in (
            *(("at 0.0", "at 0.04 GB/s", False), ("at 0.0…", "at 0.04 GB/s", True), ("None", "7", False)),
            *(("TaskPlugin = …", f"no (TaskPlugin = {plugin})", True) for plugin in ("task/none", "(null)")),
            ("no", "none", False),
        )
        for shown in (of(observed=words), of(cause=words))
    ),
    *(  # it was read from the text, which is rounded to four digits
        ({"value": None, "between": (1e5, 1e6)}, [of(value, observed="3e5 us")], (True, True, right))
        for value, right in ((2.1e5, True), (210000, True), (35, False), (-2e5, False), ("late", False), (True, False))
    ),
)
def test_a_fault_is_detected_by_gate_and_outcome_on_its_subject_with_its_value_words_or_size(declared, verdicts, seen):
    assert judged_as(DRILL.model_copy(update=declared), *verdicts)[:3] == seen


def test_a_sign_in_a_log_is_a_cause_too_and_the_words_of_the_verdict_are_given():
    assert judged_as(DRILL, of())[3] == "observed 1, expected 2"
    drill = DRILL.model_copy(update=dict(says="slurm.out-of-memory"))
    assert judged_as(drill, of())[2] is False
    assert judged_as(drill, of(), signs=("slurm.out-of-memory",))[2] is True


def test_a_fault_that_is_survived_must_be_said_and_pass():
    survived = {"outcome": Outcome.PASS, "says": "no answer"}
    drill = Drill(id="d", fault="f", phase="discovery", gate="run.closed", subject="job", **survived)
    passed = verdicts_of(verdict("run.closed", "job", Outcome.PASS))
    assert perform.compare(drill, passed, passed, "… job 1: no answer") == (True, True, True, "… job 1: no answer")
    assert perform.compare(drill, passed, passed, "silence")[0] is False
    failed = verdicts_of(verdict("run.closed", "job"))
    assert perform.compare(drill, failed, failed, "no answer")[1] is False


@for_each(
    (Outcome.PASS, 29.5, (True, True, True)),
    (Outcome.PASS, 0.1, (False, True, False)),
    (Outcome.FAIL, 29.5, (False, False, False)),
)
def test_a_fault_that_is_survived_in_silence_is_seen_in_the_value_of_what_passed(outcome, value, seen):
    """The caches of an NFS client: the screen says nothing of them, and the late name shows that they were there."""
    drill = DRILL.model_copy(update=dict(outcome=Outcome.PASS, value=None, between=(15, 32)))
    assert judged_as(drill, of(value, outcome))[:3] == seen


# ---- the moment, and the cluster


@case_for_each(
    ("n0 idle\nn1 idle\n", "", False, None),
    ("n0 idle\nn1 down*\n", "", False, "n1 down*"),
    ("n0 idle\n", "", False, "n1 is not there"),
    ("n0 idle\nn1 idle\n", "discovery RUNNING\n", False, "job discovery RUNNING is left"),
    ("n0 idle\nn1 idle\n", "", True, "a fault that was made could not be undone"),
    ("", "", False, "the controller did not answer"),
)
def test_a_cluster_that_is_not_idle_and_whole_is_replaced(tmp_path, monkeypatch, sinfo, squeue, spoiled, broken):
    """A drill ran on the cluster that the one before had left broken: its false alarm was that one's fault."""
    cluster = environment.LocalCluster(tmp_path, Shape(), up=True, is_spoiled=spoiled)
    verbs: list[str] = []

    def verb(*words: str, **options: Any) -> environment.Ended:
        verbs.append(words[0])
        return environment.Ended(words, 0, {"sinfo": sinfo, "squeue": squeue}.get((*words, "")[1], ""), "")

    monkeypatch.setattr(cluster, "verb", verb)
    monkeypatch.setattr(environment, "RECOVERY_S", 0)
    monkeypatch.setattr(environment, "pause", lambda: None)
    assert cluster.heal() == broken
    assert [name for name in verbs if name != "sh"] == ([] if broken is None else ["down", "down", "up"])
    assert cluster.is_spoiled is False


def test_an_undo_that_fails_spoils_the_cluster_and_on_a_real_one_commands_of_the_login_host_alone_are_made():
    here = environment.Here(("a", "b"))
    here.make((("sh", "true"),))
    with pytest.raises(DrillError, match="local one only"):
        here.make((("on", "n1", "true"),))
    perform._undo(DRILL.model_copy(update=dict(undo=(("boot", "n1"),))), here)
    assert here.is_spoiled


# ---- false alarms


@for_each(
    ([*HEALTHY, verdict()], []),
    ([*HEALTHY, verdict(), verdict("discovery.shm")], ["discovery.shm [n1] fail"]),
    ([*HEALTHY, verdict(), verdict("discovery.nofile", "n1", Outcome.WARN)], ["discovery.nofile [n1] warn"]),
    ([*HEALTHY, verdict(), verdict("discovery.slurm.gres", "n1")], []),  # a declared consequence
    ([*HEALTHY, verdict(), verdict("discovery.slurm.gres", "n0")], ["discovery.slurm.gres [n0] fail"]),
    ([verdict()], ["nothing was said about n0"]),  # which has to be heard of, and to pass
    ([verdict(), verdict("discovery.shm", "n0", Outcome.INCOMPLETE)], ["discovery.shm [n0] incomplete"]),
)
def test_a_failure_that_the_fault_does_not_explain_is_a_false_alarm(verdicts, alarms):
    assert [alarm.partition(":")[0] for alarm in perform.false_alarms(DRILL, verdicts)] == alarms
    before = frozenset((bad.gate, bad.subject) for bad in verdicts if bad.gate != DRILL.gate)
    assert not [alarm for alarm in perform.false_alarms(DRILL, verdicts, before) if "nothing" not in alarm]


# ---- what is told


NOT_DONE = perform.not_performed(DRILL, "no cluster")
NO_FABRIC = perform.not_performed(DRILL, "no fabric", applicable=False)


@for_each(
    (a_drill_report(a_drill_result()), 0),
    (a_drill_report(a_drill_result(), NO_FABRIC), 0),
    (a_drill_report(a_drill_result(right_subject=False)), 1),
    (a_drill_report(a_drill_result(false_alarms=["x"])), 1),
    (a_drill_report(a_drill_result(detected=False), NOT_DONE), 1),
    (a_drill_report(a_drill_result(), NOT_DONE), 2),
    (a_drill_report(NO_FABRIC), 2),
    (a_drill_report(a_drill_result(), planned=["d", "e"]), 2),
    (a_drill_report(), 2),
)
def test_exit_codes(done, code):
    assert result.exit_code(done) == code


def test_totals_count_what_was_performed_and_say_what_was_not():
    late = a_drill_result(drill="e", right_cause=False, seconds_to_detect=4.0)
    done = a_drill_report(a_drill_result(), late, NOT_DONE)
    assert result.totals(done) == (
        "2 of 2 drills detected; 2 in the right place; 1 with the right cause; 0 false alarms elsewhere; "
        "median 3 s to detect; 1 not performed"
    )


def test_what_a_log_says_is_no_markup_in_the_reports():
    done = a_drill_report(a_drill_result(observed="<script>alert(1)</script> | `x`", false_alarms=["<img src=x>"]))
    assert "<script" not in result.markdown(done)
    assert "\\|" in result.markdown(done)


def test_a_result_without_what_was_seen_or_why_not_is_refused():
    with pytest.raises(ValidationError, match="needs what was seen"):
        a_drill_result(detected=None)
    with pytest.raises(ValidationError, match="why it was not"):
        a_drill_result(performed=False, detected=None, right_subject=None, right_cause=None, seconds_to_detect=None)


def test_drills_of_one_shape_are_performed_together():
    shapes = [drill.shape for drill in campaign.in_order(drills.DRILLS)]
    assert sum(shape != other for shape, other in pairwise(shapes)) == len(set(shapes)) - 1 > 2


# ---- on another cluster


def test_ranks_nodes_and_counts_are_those_of_the_cluster():
    there = drills.DECLARED["wrong-value"].placed(("gpu01", "gpu02"), 8)
    assert there.subject == "gpu02/rank8"
    assert there.environment["BRINGUP_DRILL"] == "wrong-value:8"
    assert there.silent == ("gpu01/rank0", "gpu01/rank1", "gpu02/rank9")
    assert [drills.DECLARED["task-lost"].placed(("a", "b"), gpus).value for gpus in (8, 2)] == [7, 1]
    for name, placed in (("rank-killed", "kill-rank:5@4"), ("rank-lost-at-end", "kill-at:5@end")):
        assert drills.DECLARED[name].placed(("a", "b"), 4).environment["BRINGUP_DRILL"] == placed


def test_evidence_is_tampered_with_under_the_names_of_the_cluster():
    """The line of n1 was taken out of evidence that has none. And inventory-n1.jsonl was renamed like a node."""
    assert '"at": "b", "end"' in str(drills.DECLARED["evidence-truncated"].placed(("a", "b"), 8).tamper)
    assert drills.DECLARED["evidence-added"].placed(("a", "b"), 8).says.startswith("inventory-n1.jsonl")


def test_a_drill_for_anywhere_names_no_node_and_no_rank_of_the_local_cluster():
    for drill in drills.DECLARED.values():
        texts = [drill.subject, *drill.silent, *(value for pair in drill.also + drill.consequences for value in pair)]
        texts += drill.environment.values()
        if drill.where == "anywhere":
            plain = [re.sub(r"\{\w+(-1)?\}", "", text) for text in texts]
            assert [text for text in plain if re.search(r"\bn\d\b|rank\d|-rank:\d", text)] == [], drill.id
        placed = drill.placed(("a", "b", "c", "d"), 8)
        assert "{" not in "".join([placed.subject, *placed.silent, placed.says, *placed.environment.values()]), drill.id
        assert not drill.says.isdigit(), f"{drill.id}: a number is a value"


def test_a_size_is_asked_for_by_its_place_and_is_another_one_on_gpus(monkeypatch):
    """4MiB is not measured on GPUs, and 16MiB is not the largest there."""
    monkeypatch.syspath_prepend(TESTS.parent / "infrastructure-validation/probes")
    import bench
    import collectives

    engines = {"here": collectives.CPU_SIZES, "on GPUs": collectives.GPU_SIZES}
    slowed = {}
    named = ((drill, drill.environment.get("BRINGUP_DRILL", "")) for drill in drills.DECLARED.values())
    sized = [drill for drill, name in named if name.startswith("slow-size")]
    for drill in sized:
        monkeypatch.setenv("BRINGUP_DRILL", drill.environment["BRINGUP_DRILL"])
        slowed[drill.id] = {engine: bench.slowed(sizes) for engine, sizes in engines.items()}
        assert drill.placed(("a", "b"), 8).environment == drill.environment
        if drill.id not in ("latency", "groups-slow"):
            assert drill.says == str(slowed[drill.id]["here"]).partition("@")[0] + " at"
    assert slowed == {
        "curve-dip": {"here": "all_reduce@4MiB", "on GPUs": "all_reduce@64MiB"},
        "curve-falls": {"here": "broadcast@16MiB", "on GPUs": "broadcast@8GiB"},
        "groups-slow": {"here": "groups.all_gather@16MiB", "on GPUs": "groups.all_gather@8GiB"},
        "latency": {"here": "all_reduce@8KiB", "on GPUs": "all_reduce@8KiB"},
    }
    monkeypatch.setenv("BRINGUP_DRILL", "slow-rank:1")
    assert bench.slowed(collectives.CPU_SIZES) is None


def test_a_fault_in_a_checkpoint_is_made_at_the_step_that_writes_one():
    """With twelve steps it was step 6; with the default of 24 no checkpoint was written there, and nothing happened."""
    text = (REPOSITORY / "training/src/recipe/arguments.py").read_text()
    [steps] = re.findall(r'steps: int = _option\("optimizer steps", (\d+)', text)
    at = {
        drill.id: drill.environment["BRINGUP_DRILL"].partition("@")[2]
        for drill in drills.DECLARED.values()
        if re.match("(cut|flip)-checkpoint|forget-tensor|kill-in-save", drill.environment.get("BRINGUP_DRILL", ""))
    }
    names = ("checkpoint-cut", "checkpoint-forgets", "checkpoint-changed", "killed-in-save")
    assert at == dict.fromkeys(names, str(int(steps) // 2))


def test_a_drill_that_would_mean_nothing_says_why():
    for drill, where, nodes, words in (
        ("node-off", "local-cpu", 4, "local cluster only"),
        ("slow-matmul", "local-cpu", 2, "4 nodes"),
        ("latency", "generic", 2, "declares no"),
        ("nic-left-out", "local-cpu", 2, "not applicable"),
        ("infiniband-left-out", "local-cpu", 2, "of nccl.transport"),
        ("infiniband-left-out", "h100-8x400g", 2, "None"),
        ("wrong-value", "local-cpu", 2, "None"),
    ):
        assert words in str(why_not(drills.DECLARED[drill], profile.load(where), nodes, 2)), drill


def test_a_fault_of_one_node_is_made_on_all_and_what_notices_it_needs_no_peer():
    altered = {drill.id: drill for drill in everywhere.everywhere(drills.DRILLS)}
    hot = altered["gpu-hot"]
    assert [command[1] for command in hot.inject] == ["n0", "n1", "n2"] == list(hot.silent)
    assert len(altered) > 100
    assert {"evidence-missing", "node-off-unnoticed", "kernel-drift"} & altered.keys() == {"kernel-drift"}
    of_n0, of_bed = "discovery.gpu.clock_cap [n0] warn: 1410", f"{everywhere.OF_THE_BED} [n1] fail: a"
    alarms = [of_n0, "nothing was said about n2", of_bed]

    def performed(name: str, detected: bool, alarms: list[str]) -> DrillResult:
        named = {field: getattr(altered[name], field) for field in ("fault", "phase", "gate", "subject", "outcome")}
        seen = {"detected": detected, "right_subject": False, "right_cause": False, "seconds_to_detect": 1.0}
        return DrillResult(drill=name, performed=True, seconds=2.0, false_alarms=alarms, **named, **seen)

    results = [performed("gpu-hot", True, alarms), performed("kernel-drift", False, alarms[1:])]
    assert everywhere.noticing(results[0]) == ["discovery.gpu.slowdown", "discovery.gpu.clock_cap"]
    planned = ["gpu-hot", "kernel-drift", "os-drift"]
    common = {"profile": None, "git_commit": None, "opened_at": "2026-11-28T00:00:00Z"}
    done = DrillReport(name="d", place="local-cluster", planned=planned, results=results, **common)
    page = everywhere.page(done)
    assert "1 of 2 faults were noticed on all nodes" in page
    assert "; 1 not performed" in page
    assert "| kernel-drift: one node runs another kernel | discovery.kernel |" in page
    assert "| discovery.gpu.slowdown | gpu-hot |" in page
