"""The one idea: a pass is built from evidence, and absence is never health."""

import json
import shutil
from pathlib import Path

import pytest
from bringup import judge
from bringup import results as runs
from bringup.evidence import pair_rounds
from bringup.evidence.parsed import Parsed
from bringup.plan import catalogue as gates
from bringup.plan import profile
from bringup.plan.expectation import Expectation
from bringup.records import Kind, Observations, Outcome, Run, SiteUsed, Verdict, Verdicts
from bringup.records.base import worst_of_run
from bringup.report import document
from bringup.run import open as opening
from factory import a_run, a_verdict
from loops import for_each
from runs_for_tests import HEALTHY_NODES, about, discovery, reseal


def judged(folder) -> Verdicts:
    return judge.judge_folder(reseal(folder) if (folder / runs.CLOSED).exists() else folder).verdicts


def outcome(verdicts: Verdicts, gate: str, subject: str) -> Outcome:
    return next(v.outcome for v in verdicts.verdicts if (v.gate, v.subject) == (gate, subject))


def failing_subjects(verdicts: Verdicts) -> set[str]:
    return {v.subject for v in verdicts.verdicts if v.outcome is not Outcome.PASS}


def test_a_healthy_run_passes_on_every_planned_pair(tmp_path, monkeypatch):
    verdicts = judged(discovery(tmp_path, monkeypatch))
    assert verdicts.outcome is Outcome.PASS
    planned = runs.load(next(tmp_path.iterdir())).planned
    assert {(v.gate, v.subject) for v in verdicts.verdicts} == {
        (g, s) for g, subjects in planned.items() for s in subjects
    }
    assert len(verdicts.verdicts) > 50


def test_a_copied_folder_gives_the_same_verdicts(tmp_path, monkeypatch):
    folder = discovery(tmp_path / "here", monkeypatch)
    copy = tmp_path / "else where" / "it's copied"
    shutil.copytree(folder, copy)
    assert judged(copy) == judged(folder)


def test_a_run_without_any_evidence_is_incomplete(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch, close=False)
    shutil.rmtree(folder / "raw")
    (folder / "raw").mkdir()
    verdicts = judged(folder)
    assert verdicts.outcome is Outcome.INCOMPLETE
    assert {v.outcome for v in verdicts.verdicts} == {Outcome.INCOMPLETE}
    assert {v.observed for v in verdicts.verdicts} == {"nothing"}


def test_nothing_planned_is_incomplete():
    run = a_run(nodes=["n0"], gpus=1, plan={})
    everything_excluded = profile.load("local-cpu").model_copy(
        update={"not_applicable": [profile.NotApplicable(gate=gate, reason="all") for gate in gates.GATES]}
    )
    assert judge.judge(run, everything_excluded, Parsed()).outcome is Outcome.INCOMPLETE


def test_a_run_that_was_never_closed_is_incomplete_however_good_the_rest_is(tmp_path, monkeypatch):
    verdicts = judged(discovery(tmp_path, monkeypatch, close=False))
    assert verdicts.outcome is Outcome.INCOMPLETE
    assert failing_subjects(verdicts) == {"job"}


def test_why_a_script_opened_no_run_is_said_where_the_run_is_judged_again(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch, close=False)
    (folder / runs.NOT_OPENED).write_text(
        "discovery.sbatch ended before it opened a run: no Python environment at /x\n"
    )
    verdicts = judged(folder)
    assert verdicts.outcome is Outcome.INCOMPLETE
    closed = next(v for v in verdicts.verdicts if v.gate == "run.closed")
    assert "no Python environment at /x" in (closed.cause or "")
    assert closed.evidence == f"{runs.NOT_OPENED}:1"


def test_a_node_that_did_not_answer_is_incomplete_and_named(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    inventory = folder / "raw/inventory.jsonl"
    inventory.write_text("".join(line for line in inventory.read_text().splitlines(True) if line.startswith("0: ")))
    verdicts = judged(folder)
    assert outcome(verdicts, "discovery.node.answered", "n1") is Outcome.INCOMPLETE
    alone = {v.cause for v in verdicts.verdicts if v.outcome is not Outcome.PASS and v.subject != "n1"}
    # n0 is blamed for nothing else
    assert alone == {
        "compared with too few: 1 of 2 are known",
        "not found out: no other node was there to compare with",
    }


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
    inventory = folder / "raw/inventory.jsonl"
    count = '"subject": "n1", "quantity": "discovery.gpu.count", "value": '
    inventory.write_text(inventory.read_text().replace(f"{count}2", f"{count}1"))
    verdicts = judged(folder)
    bad = [v for v in verdicts.verdicts if v.outcome is not Outcome.PASS]
    assert [(v.gate, v.subject, v.observed, v.expected) for v in bad] == [
        ("discovery.gpu.count", "n1", "1", "2"),
        ("discovery.slurm.gres", "n1", "1 (Gres says 2, 1 devices were found)", "0"),
    ]
    assert bad[0].evidence.startswith("raw/inventory.jsonl:")
    assert verdicts.outcome is Outcome.FAIL


def test_a_node_that_slurm_calls_down_fails_with_slurms_reason(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    (folder / "raw/scontrol-node.txt").write_text(
        HEALTHY_NODES.replace(
            "NodeName=n1 Arch=x86_64 Gres=gpu:placeholder:2 Version=22.05.8 State=IDLE Partitions=main Reason=none",
            "NodeName=n1 Arch=x86_64 Gres=gpu:placeholder:2 State=DOWN+NOT_RESPONDING Partitions=main "
            "Reason=Not responding [root@2026-11-20T11:06:56]",
        )
    )
    verdict = next(v for v in judged(folder).verdicts if v.gate == "discovery.node.state" and v.subject == "n1")
    assert verdict.outcome is Outcome.FAIL
    assert verdict.observed == "DOWN+NOT_RESPONDING (Not responding)"


def test_a_launch_that_failed_is_a_fault_and_not_only_missing_evidence(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    inventory = folder / "raw/inventory.jsonl"
    inventory.write_text("".join(line for line in inventory.read_text().splitlines(True) if line.startswith("0: ")))
    (folder / "raw/inventory.err").write_text(
        "srun: error: Task launch for StepId=13.0 failed on node n1: Communication connection failure\n"
    )
    assert outcome(judged(folder), "discovery.node.answered", "n1") is Outcome.FAIL


def test_two_node_names_for_one_machine_fail_on_both(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    inventory = folder / "raw/inventory.jsonl"
    text = inventory.read_text()
    ids = [line.split('"value": "')[1].split('"')[0] for line in text.splitlines() if "discovery.node.distinct" in line]
    inventory.write_text(text.replace(ids[0], ids[1]))
    verdicts = judged(folder)
    assert outcome(verdicts, "discovery.node.distinct", "n0") is Outcome.FAIL
    assert outcome(verdicts, "discovery.node.distinct", "n1") is Outcome.FAIL


def nccl_run() -> Run:
    return a_run("nccl_scaling", profile="generic")


def test_a_number_without_a_limit_that_never_arrived_is_no_measured_one():
    parsed = Parsed()
    parsed.saw("nccl.ranks", "2-nodes", 4, "count", "raw/nccl-2:1")
    transport = about("nccl.transport", parsed, nccl_run())["2-nodes"]
    assert (transport.outcome, transport.kind) == (Outcome.INCOMPLETE, Kind.ABSENT)


@for_each("another", [None, "Socket"])
def test_a_value_that_could_not_be_found_out_is_unknown_also_where_it_has_no_limit(another: str | None):
    """Also where a second log names one."""
    parsed = Parsed()
    parsed.saw("nccl.ranks", "2-nodes", 4, "count", "raw/nccl-2:1")
    parsed.saw("nccl.transport", "2-nodes", None, "text", "raw/nccl-2:1", "the log names none")
    if another:
        parsed.saw("nccl.transport", "2-nodes", another, "text", "raw/nccl-2:2")
    transport = about("nccl.transport", parsed, nccl_run())["2-nodes"]
    assert (transport.outcome, transport.kind) == (Outcome.INCOMPLETE, Kind.UNKNOWN)
    assert "the log names none" in (transport.cause or "")


@for_each("strict, outcome, whole", [(False, Outcome.NO_LIMIT, Outcome.PASS), (True, *[Outcome.INCOMPLETE] * 2)])
def test_what_was_measured_without_a_limit_is_no_gap_unless_the_site_wants_one(strict, outcome, whole):
    run = nccl_run().model_copy(
        update={
            "planned": {"nccl.transport": ["2-nodes"], "nccl.ranks": ["2-nodes"]},
            "site": SiteUsed(name="lab", says={"strict": strict}),
        }
    )
    parsed = Parsed()
    parsed.saw("nccl.transport", "2-nodes", "Socket", "text", "raw/nccl-2:1")
    parsed.saw("nccl.ranks", "2-nodes", 4, "count", "raw/nccl-2:1")
    verdicts = judge.judge(run, profile.load("generic"), parsed)
    seen = [verdict for verdict in verdicts.verdicts if verdict.kind in (Kind.JUDGED, Kind.UNDECLARED)]
    verdict_of = {verdict.gate: verdict for verdict in seen}
    assert (verdict_of["nccl.transport"].outcome, verdict_of["nccl.transport"].kind) == (outcome, Kind.UNDECLARED)
    assert worst_of_run([verdict.outcome for verdict in seen]) is whole


def test_what_was_observed_is_shown_also_where_the_profile_has_no_number():
    """It said "observed nothing", and the newcomer saw none of the values that a profile needs."""
    parsed = Parsed()
    parsed.saw("nccl.ranks", "2-nodes", 4, "count", "raw/nccl-2:1")
    parsed.saw("nccl.hosts", "2-nodes", 2, "count", "raw/nccl-2:1")
    parsed.saw("nccl.wrong_values", "2-nodes", 0, "count", "raw/nccl-2:1")
    parsed.saw("nccl.transport", "2-nodes", "Socket", "text", "raw/nccl-2:1")
    for size, speed in (("1MiB", 3.5), ("16MiB", 9.25)):
        parsed.saw(f"nccl.all_reduce.busbw@{size}", "2-nodes", speed, "GB/s", "raw/collectives-2.jsonl:1")
    verdict_of = {(v.gate, v.subject): v for v in judge.judge(nccl_run(), profile.load("generic"), parsed).verdicts}
    transport, busbw = verdict_of["nccl.transport", "2-nodes"], verdict_of["nccl.all_reduce.busbw", "2-nodes"]
    assert (transport.kind, transport.value, transport.observed) == (Kind.UNDECLARED, "Socket", "Socket")
    assert (busbw.outcome, busbw.observed) == (Outcome.NO_LIMIT, "3.5 GB/s (1MiB); 9.25 GB/s (16MiB)")
    assert (busbw.value, busbw.at) == (9.25, "16MiB")


def collectives(ranks: int, busbw: float, wrong: int = 0) -> Verdicts:
    run = a_run("nccl_monitoring")
    parsed = Parsed()
    parsed.saw("nccl.ranks", "2-nodes", ranks, "count", "f:1")
    parsed.saw("nccl.hosts", "2-nodes", 2, "count", "f:2")
    parsed.saw("nccl.wrong_values", "2-nodes", wrong, "count", "f:3")
    parsed.saw("nccl.all_reduce.busbw@16MiB", "2-nodes", busbw, "GB/s", "f:4")
    return judge.judge(run, profile.load("local-cpu"), parsed)


@pytest.mark.parametrize(
    ("ranks", "busbw", "wrong", "expected"),
    [
        (4, 0.5, 0, Outcome.PASS),
        (4, 0.01, 0, Outcome.FAIL),
        (2, 9.9, 0, Outcome.INCOMPLETE),
        (4, 9.9, 3, Outcome.INCOMPLETE),
    ],
)
def test_bandwidth_is_judged_only_on_the_right_ranks_and_results(ranks, busbw, wrong, expected):
    assert outcome(collectives(ranks, busbw, wrong), "nccl.all_reduce.busbw", "2-nodes") is expected


def test_the_named_size_is_part_of_the_expectation():
    verdict = next(v for v in collectives(4, 0.5).verdicts if v.gate == "nccl.all_reduce.busbw")
    assert verdict.expected == "≥ 0.03 GB/s at 16MiB"


def test_of_two_observations_the_worse_one_counts(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    (folder / "raw/again.jsonl").write_text(
        '1: {"probe": "inventory", "at": "n1", "subject": "n1", '
        '"quantity": "discovery.gpu.count", "value": 1, "unit": "count"}\n'
        '1: {"probe": "inventory", "at": "n1", "end": 1}\n'
    )
    assert outcome(judged(folder), "discovery.gpu.count", "n1") is Outcome.FAIL


def test_evidence_about_a_node_that_was_not_requested_is_said(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    (folder / "raw/other.jsonl").write_text(
        '{"probe": "inventory", "at": "n7", "subject": "n7", '
        '"quantity": "discovery.gpu.count", "value": 2, "unit": "count"}\n'
        '{"probe": "inventory", "at": "n7", "end": 1}\n'
    )
    assert any("n7" in note for note in judged(folder).notes)


def test_a_gate_that_this_version_does_not_know_is_incomplete(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    text = (folder / "run.json").read_text().replace('"discovery.kernel"', '"discovery.phase_of_the_moon"')
    (folder / "run.json").write_text(text)
    assert outcome(judged(folder), "discovery.phase_of_the_moon", "n0") is Outcome.INCOMPLETE


def test_every_need_of_a_gate_is_a_gate():
    needs = {need for gate in gates.GATES.values() for need in gate.needs}
    assert needs
    assert needs <= set(gates.GATES)


def test_a_node_that_says_two_things_is_odd(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    (folder / "raw/again.jsonl").write_text(
        '1: {"probe": "inventory", "at": "n1", "subject": "n1", '
        '"quantity": "discovery.kernel", "value": "5.15", "unit": "text"}\n'
        '1: {"probe": "inventory", "at": "n1", "end": 1}\n'
    )
    verdict = next(v for v in judged(folder).verdicts if (v.gate, v.subject) == ("discovery.kernel", "n1"))
    assert verdict.outcome is Outcome.FAIL
    assert "says both 5.15 and 6.18.44" in (verdict.cause or "")


def test_a_step_that_ended_badly_is_said_even_when_all_evidence_is_there(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch, close=False)
    opening.close_run(folder, 143)
    assert any("exit code 143" in note for note in judged(folder).notes)


def test_half_a_report_is_no_evidence_of_health(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    inventory = folder / "raw/inventory.jsonl"
    kept = [line for line in inventory.read_text().splitlines(True) if not (line.startswith("1: ") and '"end"' in line)]
    inventory.write_text("".join(kept))
    verdict = next(v for v in judged(folder).verdicts if (v.gate, v.subject) == ("discovery.gpu.count", "n1"))
    assert verdict.outcome is Outcome.INCOMPLETE
    assert "did not finish; it had said 2" in (verdict.cause or "")


def test_a_value_in_another_unit_is_not_compared(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    inventory = folder / "raw/inventory.jsonl"
    inventory.write_text(
        inventory.read_text().replace(
            '"discovery.gpu.count", "value": 2, "unit": "count"', '"discovery.gpu.count", "value": 2, "unit": "dozen"'
        )
    )
    verdict = next(v for v in judged(folder).verdicts if v.gate == "discovery.gpu.count")
    assert verdict.outcome is Outcome.INCOMPLETE
    assert verdict.cause == "observed in dozen, the gate is in count"


def test_a_plan_that_lost_a_node_is_judged_on_all_requested_nodes(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    run = json.loads((folder / "run.json").read_text())
    run["planned"] = {
        gate: [subject for subject in subjects if subject != "n1"] for gate, subjects in run["planned"].items()
    }
    (folder / "run.json").write_text(json.dumps(run))
    inventory = folder / "raw/inventory.jsonl"
    inventory.write_text("".join(line for line in inventory.read_text().splitlines(True) if line.startswith("0: ")))
    assert outcome(judged(folder), "discovery.node.answered", "n1") is Outcome.INCOMPLETE


def test_a_report_names_the_profile_it_was_judged_against(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    other = profile.load("generic")
    assert "| generic (the run was opened with local-cpu)" in document.run(judge.judge_folder(folder, other))


FACT = (
    '{"probe": "inventory", "at": "n1", "subject": "n1", "quantity": "discovery.gpu.count", "unit": "count", "value": '
)
NOT_FACTS = [f"{FACT}{value}}}" for value in ("9" * 400, "1e999", '"\\ud800"', "[1]", "{}")]


def judged_with(folder: Path, line: str) -> Verdicts:
    """As if the line had been there when the run was closed: only what it says can speak against it."""
    (folder / "raw/evil.jsonl").write_text(f"1: {line}\n")
    judged = judge.judge_folder(reseal(folder))
    observations = Observations(observations=judged.observations, problems=judged.problems)
    runs.save_judgement(folder, observations, judged.verdicts, document.run(judged))
    return judged.verdicts


@pytest.mark.parametrize("line", [*NOT_FACTS, "[" * 200_000, '{"why": 5}', "\x00\x1b[31m"])
def test_a_line_that_is_not_a_fact_is_a_note_and_changes_no_verdict(tmp_path, monkeypatch, line):
    folder = discovery(tmp_path, monkeypatch)
    healthy = judge.judge_folder(folder).verdicts
    verdicts = judged_with(folder, line)
    assert any(note.startswith("raw/evil.jsonl:1: not a fact") for note in verdicts.notes)
    assert [(v.gate, v.subject, v.outcome) for v in verdicts.verdicts] == [
        (v.gate, v.subject, v.outcome) for v in healthy.verdicts
    ]


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


def test_who_lacks_what_a_fleet_gate_needs_is_not_judged_and_has_no_vote():
    parsed = Parsed()
    for node, answering, model in (
        ("n0", 2, "H100"),
        ("n1", 1, "H200"),
        ("n2", 2, "H100"),
        ("n3", 1, "H200"),
        ("n4", 1, "H200"),
    ):
        parsed.saw("discovery.gpu.answering", node, answering, "count", "e")
        parsed.saw("discovery.gpu.model", node, model, "text", "e")
    nodes = ["n0", "n1", "n2", "n3", "n4"]
    run = nccl_run().model_copy(
        update={
            "phase": "discovery",
            "nodes": nodes,
            "planned": {"discovery.gpu.model": nodes, "discovery.gpu.answering": nodes},
        }
    )
    outcome_of = about("discovery.gpu.model", parsed, run, "generic")
    assert {node: v.outcome for node, v in outcome_of.items()} == {
        "n0": Outcome.PASS,
        "n1": Outcome.INCOMPLETE,
        "n2": Outcome.PASS,
        "n3": Outcome.INCOMPLETE,
        "n4": Outcome.INCOMPLETE,
    }
    assert outcome_of["n1"].cause == "not judged: discovery.gpu.answering did not pass"


def speeds(entry: dict[str, object], of_n1: float) -> dict[str, Verdict]:
    """The gate of speeds near those of the peers, as the profile declares it; n0 and n2 reach 100 TFLOP/s."""
    nodes = ["n0", "n1", "n2"]
    parsed = Parsed()
    for node in nodes:
        parsed.saw("smoke.compute.peers", node, of_n1 if node == "n1" else 100.0, "TFLOP/s", "e")
        parsed.saw("smoke.compute.device.fallback", node, 0, "count", "e")
    gate = "smoke.compute.peers"
    run = nccl_run().model_copy(update={"phase": "smoke", "nodes": nodes, "planned": {gate: nodes}})
    generic = profile.load("generic")
    declared = Expectation.model_validate({"unit": "TFLOP/s", "source": "a test", **entry})
    verdicts = judge.judge(
        run, generic.model_copy(update={"expect": {**generic.expect, gate: declared}}), parsed
    ).verdicts
    return {v.subject: v for v in verdicts if v.gate == gate}


def test_a_profile_gives_the_number_and_never_the_direction():
    """1 GB/s passed a floor that a profile had turned into a ceiling."""
    assert speeds({"near_peers": 0.1}, 50.0)["n1"].outcome is Outcome.FAIL
    for rule in ("at_most", "at_least"):  # the gate compares peers
        wrong = speeds({rule: 60}, 50.0)["n1"]
        assert (wrong.outcome, wrong.kind) == (Outcome.INCOMPLETE, Kind.UNDECLARED)
        assert f"as {rule}, the gate is near_peers" in (wrong.cause or "")
        assert wrong.observed == "50 TFLOP/s"
    assert speeds({"near_peers": 0.1, "unit": "GB/s"}, 50.0)["n1"].outcome is Outcome.INCOMPLETE


def test_any_speed_can_be_held_against_its_peers():
    scales, generic = ["1-node", "2-nodes", "4-nodes"], profile.load("generic")
    run = nccl_run().model_copy(
        update={"nodes": ["n0", "n1", "n2", "n3"], "planned": {"nccl.all_reduce.busbw": scales}}
    )
    declared = Expectation.model_validate({"near_peers": 0.1, "at": "1GiB", "unit": "GB/s", "source": "a test"})
    parsed = Parsed()
    for scale, speed in zip(scales, (400.0, 400.0, 300.0), strict=True):
        for need, value, unit in (
            ("nccl.ranks", int(scale[0]) * 2, "count"),
            ("nccl.hosts", int(scale[0]), "count"),
            ("nccl.wrong_values", 0, "count"),
            ("nccl.all_reduce.busbw@1GiB", speed, "GB/s"),
        ):
            parsed.saw(need, scale, value, unit, "e")
    verdicts = judge.judge(run, generic.model_copy(update={"expect": {"nccl.all_reduce.busbw": declared}}), parsed)
    assert [outcome(verdicts, "nccl.all_reduce.busbw", scale) for scale in scales] == [
        Outcome.PASS,
        Outcome.PASS,
        Outcome.FAIL,
    ]


def test_a_node_that_was_compared_with_nobody_is_not_equal_to_its_peers(tmp_path, monkeypatch):
    folder = discovery(tmp_path, monkeypatch)
    inventory = folder / "raw/inventory.jsonl"
    inventory.write_text("".join(line for line in inventory.read_text().splitlines(True) if line.startswith("0: ")))
    node = json.loads(inventory.read_text().splitlines()[0].partition(" ")[2])["at"]
    verdicts = judged(folder)
    for gate in ("discovery.kernel", "discovery.node.distinct", "discovery.rdma.same"):
        verdict = next(v for v in verdicts.verdicts if (v.gate, v.subject) == (gate, node))
        assert (verdict.outcome, verdict.cause) == (Outcome.INCOMPLETE, "compared with too few: 1 of 2 are known")


def test_of_three_peers_two_that_are_known_cannot_say_who_is_slow():
    nodes, parsed = ["n0", "n1", "n2"], Parsed()
    for node, speed in (("n0", 100.0), ("n1", 10.0)):
        parsed.saw("smoke.compute.peers", node, speed, "TFLOP/s", "e")
    run = nccl_run().model_copy(update={"phase": "smoke", "nodes": nodes, "planned": {"smoke.compute.peers": nodes}})
    verdicts = judge.judge(run, profile.load("generic"), parsed)
    assert {outcome(verdicts, "smoke.compute.peers", node) for node in nodes} == {Outcome.INCOMPLETE}


@for_each(
    ("gate", "outcome", "stops"),
    [
        ("discovery.gpu.count", Outcome.FAIL, True),
        ("discovery.gpu.count", Outcome.INCOMPLETE, True),
        ("discovery.kernel_log.xid", Outcome.FAIL, True),
        ("discovery.kernel_log.xid", Outcome.INCOMPLETE, False),
        ("discovery.slurm.prolog", Outcome.WARN, False),
        ("discovery.slurm.prolog", Outcome.INCOMPLETE, False),
        ("train.scaling", Outcome.FAIL, False),
        ("run.closed", Outcome.INCOMPLETE, True),
        ("nccl.all_reduce.busbw", Outcome.FAIL, True),
        ("nccl.all_reduce.busbw", Outcome.INCOMPLETE, False),  # generic has no number
        ("of.a.newer.version", Outcome.INCOMPLETE, True),
        # how a site shares its nodes, its limits, and promises that no phase uses
        *(
            (gate, outcome, False)
            for outcome in (Outcome.FAIL, Outcome.INCOMPLETE)
            for gate in (
                "discovery.slurm.confines_devices",
                "discovery.nofile",
                "discovery.memlock",
                "smoke.memory.enforced",
                "smoke.gpu.isolated",
                "smoke.cpu.confined",
                "smoke.time_limit.warned",
                "smoke.jobs.refused_gpus",
            )
        ),
        # what the later phases are built on
        ("smoke.gpu.bound", Outcome.FAIL, True),
        ("smoke.fs.reads_submit_host", Outcome.FAIL, True),
        ("smoke.compute.wrong_values", Outcome.FAIL, True),
    ],
)
def test_later_phases_are_stopped_by_what_they_build_on_and_by_nothing_else(gate, outcome, stops):
    undeclared = gate == "nccl.all_reduce.busbw" and outcome is Outcome.INCOMPLETE  # generic has no number
    assert judge.stops(a_verdict(gate, "n0", outcome, kind=Kind.UNDECLARED if undeclared else None)) is stops


def test_a_need_that_has_no_verdict_about_the_subject_is_not_met(monkeypatch):
    """A rank needed a scale: no outcome was found, and that counted as met."""
    gate = gates.GATES["nccl.rank.local_time"]
    monkeypatch.setitem(gates.GATES, gate.id, gate.model_copy(update={"needs": ("nccl.ranks",)}))
    parsed = Parsed()
    parsed.saw("nccl.ranks", "2-nodes", 1, "count", "e")  # of four
    parsed.saw(gate.id, "n0/rank0", 1.0, "ratio", "e")
    verdict = about(gate.id, parsed, nccl_run(), "local-cpu")["n0/rank0"]
    assert (verdict.outcome, verdict.kind, verdict.blocked_by) == (Outcome.INCOMPLETE, Kind.BLOCKED, ["nccl.ranks"])


def test_every_need_has_a_verdict_about_the_subject_of_the_gate_that_needs_it():
    above = {"rank": ("rank", "node", "job"), "wide_scale": ("wide_scale", "scale", "job")}
    for gate in gates.GATES.values():
        for need in gate.needs:
            assert gates.GATES[need].per in above.get(gate.per, (gate.per, "job")), f"{gate.id} needs {need}"


def test_a_need_for_which_the_profile_has_no_limit_blocks_nothing_and_one_that_failed_does():
    """A profile that does not name the type of device has nothing against the one that computed."""
    gate, need = "smoke.compute.wrong_values", "smoke.compute.device"
    parsed = Parsed()
    for quantity, value, unit in ((need, "cuda", "text"), (f"{need}.fallback", 0, "count"), (gate, 0, "count")):
        parsed.saw(quantity, "n0", value, unit, "e")
    run = nccl_run().model_copy(update={"phase": "smoke", "nodes": ["n0"], "planned": {}})
    for name, outcome, kind in (
        ("generic", Outcome.PASS, Kind.JUDGED),
        ("local-cpu", Outcome.INCOMPLETE, Kind.BLOCKED),  # it expects a CPU
    ):
        verdict = about(gate, parsed, run, name)["n0"]
        assert (verdict.outcome, verdict.kind) == (outcome, kind), name


def test_a_rank_whose_node_failed_what_it_needs_is_not_judged_and_those_of_other_nodes_are(monkeypatch):
    gate = gates.GATES["nccl.rank.local_time"]
    monkeypatch.setitem(gates.GATES, gate.id, gate.model_copy(update={"needs": ("load.node_faults",)}))
    parsed = Parsed()
    for node, faults in (("n0", 1), ("n1", 0)):
        parsed.saw("load.node_faults", node, faults, "count", "e")
        parsed.saw(gate.id, f"{node}/rank{node[1]}", 1.0, gate.unit, "e")
    run = nccl_run().model_copy(
        update={"planned": {"load.node_faults": ["n0", "n1"], gate.id: ["n0/rank0", "n1/rank1"]}}
    )
    by_subject = about(gate.id, parsed, run, "local-cpu")
    assert (by_subject["n0/rank0"].kind, by_subject["n1/rank1"].kind) == (Kind.BLOCKED, Kind.JUDGED)


def discovered(*facts: tuple[str, str, object], planned: dict[str, list[str]]) -> dict[tuple[str, str], Verdict]:
    parsed = Parsed()
    for quantity, subject, value in facts:
        unit = gates.GATES[quantity.partition("@")[0]].unit
        parsed.saw(quantity, subject, value, unit, "e", "no answer" if value is None else None)
    run = nccl_run().model_copy(update={"phase": "discovery", "planned": planned})
    return {(v.gate, v.subject): v for v in judge.judge(run, profile.load("h100-8x400g"), parsed).verdicts}


def test_a_node_of_which_half_is_unknown_is_not_like_its_peers():
    gate = "discovery.kernel"
    by_subject = discovered((gate, "n0", "6.1"), (gate, "n1", "6.1"), (gate, "n1", None), planned={gate: ["n0", "n1"]})
    assert by_subject[gate, "n1"].outcome is Outcome.INCOMPLETE


def test_of_a_node_that_says_two_things_the_first_is_shown():
    gate = "discovery.kernel"
    by_subject = discovered(
        (gate, "n0", "6.1"), (gate, "n1", "6.1"), (gate, "n1", "5.15"), planned={gate: ["n0", "n1"]}
    )
    shown = by_subject[gate, "n1"]
    assert (shown.outcome, shown.value, shown.cause) == (Outcome.FAIL, "6.1", "says both 5.15 and 6.1")


def test_what_no_node_but_one_knows_is_no_majority_against_it():
    gate = "discovery.kernel"
    by_subject = discovered(
        (gate, "n0", "6.1"), (gate, "n1", None), (gate, "n2", None), planned={gate: ["n0", "n1", "n2"]}
    )
    assert {verdict.outcome for (name, _), verdict in by_subject.items() if name == gate} == {Outcome.INCOMPLETE}


def test_of_two_nodes_that_differ_the_one_whose_own_ports_are_unknown_is_not_at_fault():
    same, active = "discovery.rdma.same", "discovery.rdma.active"
    facts = (
        (same, "n0", "8 ports"),
        (same, "n1", "7 ports"),
        (f"{active}@400Gb/s", "n0", 8),
        (f"{active}@400Gb/s", "n1", None),
    )
    by_subject = discovered(*facts, planned={same: ["n0", "n1"], active: ["n0", "n1"]})
    assert [by_subject[active, node].outcome for node in ("n0", "n1")] == [Outcome.PASS, Outcome.INCOMPLETE]
    assert {by_subject[same, node].outcome for node in ("n0", "n1")} == {Outcome.FAIL}


@for_each(
    ("kind", "is_gap"), [(Kind.ABSENT, True), (Kind.UNKNOWN, True), (Kind.BLOCKED, True), (Kind.UNDECLARED, False)]
)
def test_all_that_is_incomplete_is_a_gap_but_what_no_profile_declares(kind, is_gap):
    """What makes a profile or a baseline of a run refuses it for a gap."""
    assert judge.is_fault_or_gap(a_verdict("discovery.gpu.count", "n0", Outcome.INCOMPLETE, kind=kind)) is is_gap


def test_a_round_that_names_a_node_of_another_job_plans_no_link_of_it():
    gate = "nccl.pair.link"
    run = nccl_run().model_copy(
        update={"phase": "nccl_pairwise", "nodes": ["n0", "n1", "n2"], "planned": {gate: ["n0--n1"]}}
    )
    parsed = pair_rounds.parse("n0,n2\nn0,n9\n", "raw/rounds.txt")
    judged_run = judge.judge(run, profile.load("generic"), parsed)
    assert {v.subject for v in judged_run.verdicts if v.gate == gate} == {"n0--n1", "n0--n2"}
