"""The one idea: a pass is built from evidence, and absence is never health."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from bringup.kernel import judge
from bringup.kernel import results as runs
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan import catalogue as gates
from bringup.kernel.plan import profile
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome, Verdict, Verdicts
from bringup.kernel.run_folder import RunFolder
from bringup.report import document, write
from bringup.run import open as opening
from factory import a_run
from loops import case_for_each, for_each
from runs_for_tests import HEALTHY_NODE, HEALTHY_NODES, discovery, reseal
from showing import check


def judged(folder: Path) -> Verdicts:
    return judge.judge_folder(reseal(folder) if (folder / runs.CLOSED).exists() else folder).verdicts


def by_subject(verdicts: Verdicts) -> dict[tuple[str, str], Verdict]:
    return {(v.gate, v.subject): v for v in verdicts.verdicts}


def outcome(verdicts: Verdicts, gate: str, subject: str) -> Outcome:
    return by_subject(verdicts)[gate, subject].outcome


def test_a_healthy_run_passes_on_every_planned_pair_also_where_it_was_copied(tmp_path, monkeypatch):
    folder = discovery(tmp_path / "here", monkeypatch)
    verdicts = judged(folder)
    assert verdicts.outcome is Outcome.PASS
    planned = RunFolder(folder).run.planned
    assert set(by_subject(verdicts)) == {(gate, subject) for gate, listed in planned.items() for subject in listed}
    assert len(verdicts.verdicts) > 50
    copy = tmp_path / "else where" / "it's copied"
    shutil.copytree(folder, copy)
    assert judged(copy) == judged(folder)


def test_a_run_without_any_evidence_is_incomplete(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch, close=False)
    shutil.rmtree(folder / "raw")
    (folder / "raw").mkdir()
    verdicts = judged(folder)
    assert verdicts.outcome is Outcome.INCOMPLETE
    assert {(v.outcome, v.observed) for v in verdicts.verdicts} == {(Outcome.INCOMPLETE, "nothing")}


@for_each(*PHASES)
def test_without_evidence_nothing_of_a_phase_passes(phase):
    run = a_run(phase, profile="generic")
    verdicts = judge.judge(run, profile.load("generic"), Parsed()).verdicts
    assert set(run.planned) - {verdict.gate for verdict in verdicts} <= {"train.tokens_per_s_per_rank"}  # has no limit
    assert {verdict.outcome for verdict in verdicts} == {Outcome.INCOMPLETE}


def test_nothing_planned_is_incomplete():
    run = a_run(nodes=["n0"], gpus=1, plan={})
    everything_excluded = profile.load("local-cpu").model_copy(
        update={"not_applicable": [profile.NotApplicable(gate=gate, reason="all") for gate in gates.GATES]}
    )
    assert judge.judge(run, everything_excluded, Parsed()).outcome is Outcome.INCOMPLETE


def test_a_run_that_was_never_closed_is_incomplete_however_good_the_rest_is(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch, close=False)
    verdicts = judged(folder)
    assert verdicts.outcome is Outcome.INCOMPLETE
    assert {v.subject for v in verdicts.verdicts if v.outcome is not Outcome.PASS} == {"job"}
    # why a script opened no run is said where the run is judged again
    (folder / runs.NOT_OPENED).write_text("discovery.sbatch ended before it opened a run: no environment at /x\n")
    closed = by_subject(judged(folder))["run.closed", "job"]
    assert "no environment at /x" in (closed.cause or "")
    assert closed.evidence == f"{runs.NOT_OPENED}:1"


def inventory_of(folder: Path, change: Callable[[str], str]) -> None:
    path = folder / "raw/inventory.jsonl"
    path.write_text("".join(map(change, path.read_text().splitlines(True))))


def of_n0_alone(line: str) -> str:
    return line if line.startswith("0: ") else ""


def test_a_node_that_did_not_answer_is_incomplete_and_named(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    inventory_of(folder, of_n0_alone)
    verdicts = judged(folder)
    assert outcome(verdicts, "discovery.node.answered", "n1") is Outcome.INCOMPLETE
    # n0, which was compared with nobody, is not equal to its peers, and is blamed for nothing else
    few, nobody = "compared with too few: 1 of 2 are known", "not found out: no other node was there to compare with"
    bad = [v for v in verdicts.verdicts if v.outcome is not Outcome.PASS and v.subject != "n1"]
    assert {v.cause for v in bad} == {few, nobody}
    compared = {"discovery.kernel", "discovery.node.distinct", "discovery.rdma.same"}
    assert compared <= {v.gate for v in bad if (v.outcome, v.cause) == (Outcome.INCOMPLETE, few)}


def test_a_file_cut_off_in_the_middle_is_incomplete_where_it_is_cut(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    inventory = folder / "raw/inventory.jsonl"
    lines = inventory.read_text().splitlines(True)
    inventory.write_text("".join(lines[:-3]) + lines[-3][:40])  # the tail is n0's
    verdicts = judged(folder)
    assert outcome(verdicts, "discovery.node.answered", "n0") is Outcome.INCOMPLETE
    assert outcome(verdicts, "discovery.node.answered", "n1") is Outcome.PASS
    assert any("did not finish" in note for note in verdicts.notes)


def test_a_missing_gpu_fails_on_its_node_alone(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    count = '"subject": "n1", "quantity": "discovery.gpu.count", "value": '
    inventory_of(folder, lambda line: line.replace(f"{count}2", f"{count}1"))
    verdicts = judged(folder)
    bad = [v for v in verdicts.verdicts if v.outcome is not Outcome.PASS]
    gres = ("discovery.slurm.gres", "n1", "1 (Gres says 2, 1 devices were found)", "0")
    seen = [(v.gate, v.subject, v.observed, v.expected) for v in bad]
    assert seen == [("discovery.gpu.count", "n1", "1", "2"), gres]
    assert bad[0].evidence.startswith("raw/inventory.jsonl:")
    assert verdicts.outcome is Outcome.FAIL


def again(folder: Path, node: str, quantity: str, value: object, unit: str) -> None:
    """A second, whole report of a node."""
    fact = {"probe": "inventory", "at": node, "subject": node, "quantity": quantity, "value": value, "unit": unit}
    lines = (json.dumps(fact), json.dumps({"probe": "inventory", "at": node, "end": 1}))
    (folder / "raw/again.jsonl").write_text("".join(f"1: {line}\n" for line in lines))


DOWN = """NodeName=n1 Arch=x86_64 Gres=gpu:placeholder:2 State=DOWN+NOT_RESPONDING Partitions=main \
Reason=Not responding [root@2026-11-20T11:06:56]"""


def slurm_calls_it_down(folder: Path) -> None:
    nodes = HEALTHY_NODES.replace(HEALTHY_NODE.format("n1").strip(), DOWN)
    (folder / "raw/scontrol-node.txt").write_text(nodes)


def slurm_gives_it_no_job(folder: Path) -> None:
    slurm_calls_it_down(folder)
    inventory_of(folder, of_n0_alone)


def the_launch_failed(folder: Path) -> None:
    inventory_of(folder, of_n0_alone)
    (folder / "raw/inventory.err").write_text(
        "srun: error: Task launch for StepId=13.0 failed on node n1: Communication connection failure\n"
    )


def one_machine_has_two_names(folder: Path) -> None:
    text = (folder / "raw/inventory.jsonl").read_text()
    ids = [line.split('"value": "')[1].split('"')[0] for line in text.splitlines() if "discovery.node.distinct" in line]
    inventory_of(folder, lambda line: line.replace(ids[0], ids[1]))


def the_plan_lost_a_node(folder: Path) -> None:
    run = json.loads((folder / "run.json").read_text())
    run["planned"] = {gate: [each for each in listed if each != "n1"] for gate, listed in run["planned"].items()}
    (folder / "run.json").write_text(json.dumps(run))
    inventory_of(folder, of_n0_alone)


def a_gate_is_of_another_version(folder: Path) -> None:
    text = (folder / "run.json").read_text().replace('"discovery.kernel"', '"discovery.phase_of_the_moon"')
    (folder / "run.json").write_text(text)


GPUS = '"discovery.gpu.count", "value": 2, "unit": '


@case_for_each(
    (slurm_calls_it_down, "discovery.node.state", "n1", Outcome.FAIL, "DOWN+NOT_RESPONDING (Not responding)"),
    (slurm_gives_it_no_job, "discovery.gpu.count", "n1", Outcome.INCOMPLETE, "Slurm gives no job to this node: DOWN"),
    (the_launch_failed, "discovery.node.answered", "n1", Outcome.FAIL, ""),
    (one_machine_has_two_names, "discovery.node.distinct", "n0", Outcome.FAIL, ""),
    (one_machine_has_two_names, "discovery.node.distinct", "n1", Outcome.FAIL, ""),
    (the_plan_lost_a_node, "discovery.node.answered", "n1", Outcome.INCOMPLETE, ""),
    (a_gate_is_of_another_version, "discovery.phase_of_the_moon", "n0", Outcome.INCOMPLETE, ""),
    pytest.param(
        lambda folder: again(folder, "n1", "discovery.gpu.count", 1, "count"),
        *("discovery.gpu.count", "n1", Outcome.FAIL, ""),
        id="of two observations the worse one counts",
    ),
    pytest.param(
        lambda folder: again(folder, "n1", "discovery.kernel", "5.15", "text"),
        *("discovery.kernel", "n1", Outcome.FAIL, "says both 5.15 and 6.18.44"),
        id="a node that says two things is odd",
    ),
    pytest.param(
        lambda folder: inventory_of(folder, lambda line: "" if line.startswith("1: ") and '"end"' in line else line),
        *("discovery.gpu.count", "n1", Outcome.INCOMPLETE, "did not finish; it had said 2"),
        id="half a report is no evidence of health",
    ),
    pytest.param(
        lambda folder: inventory_of(folder, lambda line: line.replace(f'{GPUS}"count"', f'{GPUS}"dozen"')),
        *("discovery.gpu.count", "n0", Outcome.INCOMPLETE, "observed in dozen, the gate is in count"),
        id="a value in another unit is not compared",
    ),
)
def test_a_fault_in_the_evidence_is_judged_where_it_is(tmp_path, monkeypatch, change, gate, subject, expected, says):
    folder = discovery(tmp_path, monkeypatch)
    change(folder)
    check(by_subject(judged(folder))[gate, subject], expected, says)


def test_evidence_about_a_node_that_was_not_requested_is_said(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    again(folder, "n7", "discovery.gpu.count", 2, "count")
    assert any("n7" in note for note in judged(folder).notes)


def test_a_step_that_ended_badly_is_said_even_when_all_evidence_is_there(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch, close=False)
    opening.close_run(folder, 143)
    assert any("exit code 143" in note for note in judged(folder).notes)


def test_a_report_names_the_profile_it_was_judged_against(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    other = profile.load("generic")
    assert "| generic (the run was opened with local-cpu)" in document.run(judge.judge_folder(folder, other))


FACT = '{"probe": "inventory", "at": "n1", "subject": "n1", "quantity": "discovery.gpu.count", '
FACT += '"unit": "count", "value": '
NOT_FACTS = [f"{FACT}{value}}}" for value in ("9" * 400, str(2**63), "1e999", '"\\ud800"', "[1]", "{}")]


def judged_with(folder: Path, line: str) -> Verdicts:
    """As if the line had been there when the run was closed: only what it says can speak against it."""
    (folder / "raw/evil.jsonl").write_text(f"1: {line}\n")
    return write.judge_and_save(reseal(folder)).verdicts


@pytest.mark.parametrize("line", [*NOT_FACTS, "[" * 200_000, '{"why": 5}', "\x00\x1b[31m"])
def test_a_line_that_is_not_a_fact_is_a_note_and_changes_no_verdict(tmp_path, monkeypatch, line):
    folder = discovery(tmp_path, monkeypatch)
    healthy = judge.judge_folder(folder).verdicts
    verdicts = judged_with(folder, line)
    assert any(note.startswith("raw/evil.jsonl:1: not a fact") for note in verdicts.notes)
    before, after = ([(v.gate, v.subject, v.outcome) for v in each.verdicts] for each in (healthy, verdicts))
    assert before == after


@pytest.mark.parametrize("value", ["-1", "[]", "2"])
def test_half_a_report_beside_a_whole_one_is_no_pass_of_what_it_speaks_of(tmp_path, monkeypatch, value):
    """A probe that said it again and did not finish: also where it repeats the good value."""
    verdicts = judged_with(discovery(tmp_path, monkeypatch), f"{FACT}{value}}}")
    assert outcome(verdicts, "discovery.gpu.count", "n1") is Outcome.INCOMPLETE
    assert outcome(verdicts, "discovery.gpu.count", "n0") is Outcome.PASS


def test_nodes_that_slurm_lists_and_the_run_left_aside_are_no_note(tmp_path, monkeypatch):
    """A gate that takes its value from Slurm's table has it for every node there, also of a mixed partition."""
    folder = discovery(tmp_path, monkeypatch)
    table = folder / "raw/scontrol-node.txt"
    table.write_text(table.read_text() + table.read_text().splitlines()[0].replace("n0", "n7") + "\n")
    assert not [note for note in judge.judge_folder(folder).verdicts.notes if "did not request" in note]
