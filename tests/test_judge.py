"""The one idea: a pass is built from evidence, and absence is never health."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from bringup import judge
from bringup import results as runs
from bringup.evidence import pair_rounds
from bringup.evidence.parsed import Parsed
from bringup.plan import catalogue as gates
from bringup.plan import profile
from bringup.plan.expectation import Expectation
from bringup.plan.profile import Profile, load
from bringup.records import Kind, Observations, Outcome, SiteUsed, Verdict, Verdicts
from bringup.records.base import worst_of_run
from bringup.report import document
from bringup.run import open as opening
from factory import a_run, a_verdict
from loops import for_each
from runs_for_tests import HEALTHY_NODES, discovery, reseal


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
    assert set(by_subject(verdicts)) == {(g, s) for g, listed in runs.load(folder).planned.items() for s in listed}
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
    assert [(v.gate, v.subject, v.observed, v.expected) for v in bad] == [
        ("discovery.gpu.count", "n1", "1", "2"),
        ("discovery.slurm.gres", "n1", "1 (Gres says 2, 1 devices were found)", "0"),
    ]
    assert bad[0].evidence.startswith("raw/inventory.jsonl:")
    assert verdicts.outcome is Outcome.FAIL


def again(folder: Path, node: str, quantity: str, value: object, unit: str) -> None:
    """A second, whole report of a node."""
    fact = {"probe": "inventory", "at": node, "subject": node, "quantity": quantity, "value": value, "unit": unit}
    lines = (json.dumps(fact), json.dumps({"probe": "inventory", "at": node, "end": 1}))
    (folder / "raw/again.jsonl").write_text("".join(f"1: {line}\n" for line in lines))


def slurm_calls_it_down(folder: Path) -> None:
    (folder / "raw/scontrol-node.txt").write_text(
        HEALTHY_NODES.replace(
            "NodeName=n1 Arch=x86_64 Gres=gpu:placeholder:2 Version=22.05.8 State=IDLE Partitions=main Reason=none",
            "NodeName=n1 Arch=x86_64 Gres=gpu:placeholder:2 State=DOWN+NOT_RESPONDING Partitions=main "
            "Reason=Not responding [root@2026-11-20T11:06:56]",
        )
    )


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


@pytest.mark.parametrize(
    ("change", "gate", "subject", "expected", "says"),
    [
        (slurm_calls_it_down, "discovery.node.state", "n1", Outcome.FAIL, "DOWN+NOT_RESPONDING (Not responding)"),
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
            lambda folder: inventory_of(
                folder, lambda line: "" if line.startswith("1: ") and '"end"' in line else line
            ),
            *("discovery.gpu.count", "n1", Outcome.INCOMPLETE, "did not finish; it had said 2"),
            id="half a report is no evidence of health",
        ),
        pytest.param(
            lambda folder: inventory_of(folder, lambda line: line.replace(f'{GPUS}"count"', f'{GPUS}"dozen"')),
            *("discovery.gpu.count", "n0", Outcome.INCOMPLETE, "observed in dozen, the gate is in count"),
            id="a value in another unit is not compared",
        ),
    ],
)
def test_a_fault_in_the_evidence_is_judged_where_it_is(tmp_path, monkeypatch, change, gate, subject, expected, says):
    folder = discovery(tmp_path, monkeypatch)
    change(folder)
    verdict = by_subject(judged(folder))[gate, subject]
    assert verdict.outcome is expected
    assert says in f"{verdict.observed}: {verdict.cause}"


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


FACT = (
    '{"probe": "inventory", "at": "n1", "subject": "n1", "quantity": "discovery.gpu.count", "unit": "count", "value": '
)
NOT_FACTS = [f"{FACT}{value}}}" for value in ("9" * 400, str(2**63), "1e999", '"\\ud800"', "[1]", "{}")]


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


Fact = tuple[str, str, object]  # quantity, subject, value; None: not found out


def judging(*facts, profile="generic", unit="", **run) -> dict[tuple[str, str], Verdict]:
    """Judge facts, in the unit of their gate, in a run of nccl_scaling on n0 and n1 but for `run`."""
    parsed = Parsed()
    for quantity, subject, value in facts:
        known = gates.GATES[quantity.partition("@")[0]].unit
        parsed.saw(quantity, subject, value, known, "e", "no answer" if value is None else None)
    used = load(profile) if isinstance(profile, str) else profile
    return by_subject(judge.judge(a_run("nccl_scaling", profile="generic").model_copy(update=run), used, parsed))


def test_a_number_without_a_limit_that_never_arrived_is_no_measured_one():
    transport = judging(("nccl.ranks", "2-nodes", 4))["nccl.transport", "2-nodes"]
    assert (transport.outcome, transport.kind) == (Outcome.INCOMPLETE, Kind.ABSENT)


@for_each(("gate", "value", "said"), [("discovery.shm", -1.0, "-1 GiB"), ("discovery.names.slowest", -0.5, "-0.5 s")])
def test_no_amount_is_below_0(gate, value, said):
    verdict = judging((gate, "n0", value), phase="discovery")[gate, "n0"]
    assert (verdict.outcome, verdict.cause) == (Outcome.INCOMPLETE, f"observed {said}: no amount is below 0")


@for_each("others", [(), (("nccl.transport", "2-nodes", "Socket"),)])
def test_a_value_that_could_not_be_found_out_is_unknown_also_where_it_has_no_limit(others):
    """Also where a second log names one."""
    facts = (("nccl.ranks", "2-nodes", 4), ("nccl.transport", "2-nodes", None), *others)
    transport = judging(*facts)["nccl.transport", "2-nodes"]
    assert (transport.outcome, transport.kind) == (Outcome.INCOMPLETE, Kind.UNKNOWN)
    assert "no answer" in (transport.cause or "")


@for_each("strict, outcome, whole", [(False, Outcome.NO_LIMIT, Outcome.PASS), (True, *[Outcome.INCOMPLETE] * 2)])
def test_what_was_measured_without_a_limit_is_no_gap_unless_the_site_wants_one(strict, outcome, whole):
    facts = (("nccl.transport", "2-nodes", "Socket"), ("nccl.ranks", "2-nodes", 4))
    verdicts = judging(
        *facts,
        planned={"nccl.transport": ["2-nodes"], "nccl.ranks": ["2-nodes"]},
        site=SiteUsed(name="lab", says={"strict": strict}),
    )
    seen = [verdict for verdict in verdicts.values() if verdict.kind in (Kind.JUDGED, Kind.UNDECLARED)]
    transport = verdicts["nccl.transport", "2-nodes"]
    assert (transport.outcome, transport.kind) == (outcome, Kind.UNDECLARED)
    assert worst_of_run([verdict.outcome for verdict in seen]) is whole


def collectives(scale: str, ranks: int, speeds: dict[str, float], wrong: int = 0) -> tuple[Fact, ...]:
    needs = (("nccl.ranks", ranks), ("nccl.hosts", int(scale[0])), ("nccl.wrong_values", wrong))
    measured = ((f"nccl.all_reduce.busbw@{size}", speed) for size, speed in speeds.items())
    return tuple((quantity, scale, value) for quantity, value in (*needs, *measured))


def test_what_was_observed_is_shown_also_where_the_profile_has_no_number():
    """It said "observed nothing", and the newcomer saw none of the values that a profile needs."""
    facts = (("nccl.transport", "2-nodes", "Socket"), *collectives("2-nodes", 4, {"1MiB": 3.5, "16MiB": 9.25}))
    verdict_of = judging(*facts)
    transport, busbw = verdict_of["nccl.transport", "2-nodes"], verdict_of["nccl.all_reduce.busbw", "2-nodes"]
    assert (transport.kind, transport.value, transport.observed) == (Kind.UNDECLARED, "Socket", "Socket")
    assert (busbw.outcome, busbw.observed) == (Outcome.NO_LIMIT, "3.5 GB/s (1MiB); 9.25 GB/s (16MiB)")
    assert (busbw.value, busbw.at) == (9.25, "16MiB")


@for_each(
    ("ranks", "busbw", "wrong", "expected"),
    [
        (4, 0.5, 0, Outcome.PASS),
        (4, 0.01, 0, Outcome.FAIL),
        (2, 9.9, 0, Outcome.INCOMPLETE),
        (4, 9.9, 3, Outcome.INCOMPLETE),
    ],
)
def test_bandwidth_is_judged_only_on_the_right_ranks_and_results_at_the_named_size(ranks, busbw, wrong, expected):
    facts = collectives("2-nodes", ranks, {"16MiB": busbw}, wrong)
    verdicts = judging(*facts, profile="local-cpu", phase="nccl_monitoring", planned=a_run("nccl_monitoring").planned)
    verdict = verdicts["nccl.all_reduce.busbw", "2-nodes"]
    assert (verdict.outcome, verdict.expected) == (expected, "≥ 0.03 GB/s at 16MiB")


def test_every_need_of_a_gate_is_a_gate_and_has_a_verdict_about_its_subject():
    above = {"rank": ("rank", "node", "job"), "wide_scale": ("wide_scale", "scale", "job")}
    needs = [(gate, gates.GATES[need]) for gate in gates.GATES.values() for need in gate.needs]
    assert needs
    for gate, need in needs:
        assert need.per in above.get(gate.per, (gate.per, "job")), f"{gate.id} needs {need.id}"


def test_who_lacks_what_a_fleet_gate_needs_is_not_judged_and_has_no_vote():
    gate, need, nodes = "discovery.gpu.model", "discovery.gpu.answering", ["n0", "n1", "n2", "n3", "n4"]
    answering, models = (2, 1, 2, 1, 1), ("H100", "H200", "H100", "H200", "H200")
    facts = [(need, *known) for known in zip(nodes, answering, strict=True)]
    facts += [(gate, *known) for known in zip(nodes, models, strict=True)]
    verdict_of = judging(*facts, phase="discovery", nodes=nodes, planned={gate: nodes, need: nodes})
    passed = [node for node in nodes if verdict_of[gate, node].outcome is Outcome.PASS]
    assert passed == ["n0", "n2"]
    assert verdict_of[gate, "n1"].outcome is Outcome.INCOMPLETE
    assert verdict_of[gate, "n1"].cause == "not judged: discovery.gpu.answering did not pass"


def declaring(gate: str, **entry: object) -> Profile:
    generic = load("generic")
    declared = Expectation.model_validate({"unit": gates.GATES[gate].unit, "source": "a test", **entry})
    return generic.model_copy(update={"expect": {**generic.expect, gate: declared}})


@for_each(
    ("entry", "expected", "says"),
    [
        ({"near_peers": 0.1}, Outcome.FAIL, ""),
        ({"at_most": 60}, Outcome.INCOMPLETE, "as at_most, the gate is near_peers"),
        ({"at_least": 60}, Outcome.INCOMPLETE, "as at_least, the gate is near_peers"),
        ({"near_peers": 0.1, "unit": "GB/s"}, Outcome.INCOMPLETE, "in GB/s"),
    ],
)
def test_a_profile_gives_the_number_and_never_the_direction(entry, expected, says):
    """1 GB/s passed a floor that a profile had turned into a ceiling."""
    gate, nodes = "smoke.compute.peers", ["n0", "n1", "n2"]
    facts = [(gate, node, 50.0 if node == "n1" else 100.0) for node in nodes]
    facts += [("smoke.compute.device.fallback", node, 0) for node in nodes]
    used = declaring(gate, **entry)
    verdict = judging(*facts, profile=used, phase="smoke", nodes=nodes, planned={gate: nodes})[gate, "n1"]
    assert verdict.outcome is expected
    assert verdict.kind is (Kind.JUDGED if expected is Outcome.FAIL else Kind.UNDECLARED)
    assert says in (verdict.cause or "")
    assert verdict.observed.startswith("50 TFLOP/s")


def test_any_speed_can_be_held_against_its_peers():
    gate, speeds = "nccl.all_reduce.busbw", {"1-node": 400.0, "2-nodes": 400.0, "4-nodes": 300.0}
    facts = [fact for scale, speed in speeds.items() for fact in collectives(scale, 2 * int(scale[0]), {"1GiB": speed})]
    used, nodes = declaring(gate, near_peers=0.1, at="1GiB"), ["n0", "n1", "n2", "n3"]
    verdict_of = judging(*facts, profile=used, nodes=nodes, planned={gate: list(speeds)})
    assert [verdict_of[gate, scale].outcome for scale in speeds] == [Outcome.PASS, Outcome.PASS, Outcome.FAIL]


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
    facts = (("nccl.ranks", "2-nodes", 1), (gate.id, "n0/rank0", 1.0))  # of four
    verdict = judging(*facts, profile="local-cpu")[gate.id, "n0/rank0"]
    assert (verdict.outcome, verdict.kind, verdict.blocked_by) == (Outcome.INCOMPLETE, Kind.BLOCKED, ["nccl.ranks"])


@for_each(
    ("profile", "outcome", "kind"),
    [("generic", Outcome.PASS, Kind.JUDGED), ("local-cpu", Outcome.INCOMPLETE, Kind.BLOCKED)],  # it expects a CPU
)
def test_a_need_for_which_the_profile_has_no_limit_blocks_nothing_and_one_that_failed_does(profile, outcome, kind):
    """A profile that does not name the type of device has nothing against the one that computed."""
    gate, need = "smoke.compute.wrong_values", "smoke.compute.device"
    facts = ((need, "n0", "cuda"), (f"{need}.fallback", "n0", 0), (gate, "n0", 0))
    verdict = judging(*facts, profile=profile, phase="smoke", nodes=["n0"], planned={})[gate, "n0"]
    assert (verdict.outcome, verdict.kind) == (outcome, kind)


def test_a_rank_whose_node_failed_what_it_needs_is_not_judged_and_those_of_other_nodes_are(monkeypatch):
    gate, need = gates.GATES["nccl.rank.local_time"], "load.node_faults"
    monkeypatch.setitem(gates.GATES, gate.id, gate.model_copy(update={"needs": (need,)}))
    facts = ((need, "n0", 1), (need, "n1", 0), (gate.id, "n0/rank0", 1.0), (gate.id, "n1/rank1", 1.0))
    planned = {need: ["n0", "n1"], gate.id: ["n0/rank0", "n1/rank1"]}
    verdict_of = judging(*facts, profile="local-cpu", planned=planned)
    kinds = (verdict_of[gate.id, "n0/rank0"].kind, verdict_of[gate.id, "n1/rank1"].kind)
    assert kinds == (Kind.BLOCKED, Kind.JUDGED)


FAILED, OPEN, PASSED = Outcome.FAIL, Outcome.INCOMPLETE, Outcome.PASS
KERNEL, PEERS = "discovery.kernel", "smoke.compute.peers"
SAME, ACTIVE = "discovery.rdma.same", "discovery.rdma.active"
DEVICE = "smoke.compute.device"
ON_GPUS = [
    (f"{DEVICE}{each}", f"n{number}", value) for each, value in (("", "cuda"), (".fallback", 0)) for number in range(3)
]
AT_400 = f"{ACTIVE}@400Gb/s"


@for_each(
    ("facts", "expected"),
    [
        # half of a node is unknown: it is not like its peers
        ([(KERNEL, "n0", "6.1"), (KERNEL, "n1", "6.1"), (KERNEL, "n1", None)], {(KERNEL, "n1"): OPEN}),
        ([(KERNEL, "n0", "6.1"), (KERNEL, "n1", "6.1"), (KERNEL, "n1", "5.15")], {(KERNEL, "n1"): FAILED}),
        ([(KERNEL, "n1", "6.1"), (KERNEL, "n1", "5.15")], {(KERNEL, "n0"): OPEN, (KERNEL, "n1"): FAILED}),
        # what no node but one knows is no majority against it
        (
            [(KERNEL, "n0", "6.1"), (KERNEL, "n1", None), (KERNEL, "n2", None)],
            {(KERNEL, node): OPEN for node in ("n0", "n1", "n2")},
        ),
        # of three peers, two that are known cannot say who is slow
        ([*ON_GPUS, (PEERS, "n0", 100.0), (PEERS, "n1", 10.0)], {(PEERS, f"n{number}"): OPEN for number in range(3)}),
        # of two nodes that differ, the one whose own ports are unknown is not at fault
        (
            [(SAME, "n0", "8 ports"), (SAME, "n1", "7 ports"), (AT_400, "n0", 8), (AT_400, "n1", None)],
            {(ACTIVE, "n0"): PASSED, (ACTIVE, "n1"): OPEN, (SAME, "n0"): FAILED, (SAME, "n1"): FAILED},
        ),
    ],
)
def test_nodes_are_compared_by_what_is_known_of_each(facts, expected):
    planned: dict[str, list[str]] = {}
    for gate, node in expected:
        planned.setdefault(gate, []).append(node)
    planned |= {gate: ["n0", *listed] for gate, listed in planned.items() if listed == ["n1"]}
    phase = "smoke" if PEERS in planned else "discovery"
    verdict_of = judging(*facts, profile="h100-8x400g", phase=phase, nodes=["n0", "n1", "n2"], planned=planned)
    assert {about: verdict_of[about].outcome for about in expected} == expected
    assert not any(verdict_of[about].blocked_by for about in expected)


def test_of_a_node_that_says_two_things_the_first_is_shown():
    facts = ((KERNEL, "n0", "6.1"), (KERNEL, "n1", "6.1"), (KERNEL, "n1", "5.15"))
    shown = judging(*facts, phase="discovery", planned={KERNEL: ["n0", "n1"]})[KERNEL, "n1"]
    assert (shown.outcome, shown.value, shown.cause) == (Outcome.FAIL, "6.1", "says both 5.15 and 6.1")


@for_each(
    ("kind", "is_gap"), [(Kind.ABSENT, True), (Kind.UNKNOWN, True), (Kind.BLOCKED, True), (Kind.UNDECLARED, False)]
)
def test_all_that_is_incomplete_is_a_gap_but_what_no_profile_declares(kind, is_gap):
    """What makes a profile or a baseline of a run refuses it for a gap."""
    assert judge.is_fault_or_gap(a_verdict("discovery.gpu.count", "n0", Outcome.INCOMPLETE, kind=kind)) is is_gap


def test_a_round_that_names_a_node_of_another_job_plans_no_link_of_it():
    gate, parsed = "nccl.pair.link", pair_rounds.parse("n0,n2\nn0,n9\n", "raw/rounds.txt")
    run = a_run("nccl_pairwise", ["n0", "n1", "n2"], plan={gate: ["n0--n1"]})
    judged_run = judge.judge(run, load("generic"), parsed)
    assert {v.subject for v in judged_run.verdicts if v.gate == gate} == {"n0--n1", "n0--n2"}
