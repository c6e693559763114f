"""An answer claims what was asked, where it was asked, and on what it was asked."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from bringup.kernel.answers import NAMED, answers, in_words, stand_ins_of
from bringup.kernel.judge import Judged
from bringup.kernel.plan import catalogue
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.claims import CLAIMS, QUESTIONS
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Answer, Decision, Kind, Mark, Observation, Outcome
from bringup.report.campaigns import DrillResult
from bringup.report.collection import headline
from factory import GPU_CLUSTER, LOCAL_CLUSTER, a_drill_result, a_run, a_verdict, drilled, healthy, judged_of, playbook
from loops import case_for_each, for_each


def marks(all_answers: list[Answer]) -> dict[int, Mark]:
    return {answer.question: answer.mark for answer in all_answers}


def claim(all_answers: list[Answer], name: str):
    return next(claim for answer in all_answers for claim in answer.claims if claim.claim == name)


def changing(run: Judged, gates: Collection[str], subjects: Collection[str] | None = None, **changes: Any) -> Judged:
    """The run with other fields of the verdicts of these gates. subjects: None: all."""
    known = [(v, v.gate in gates and (subjects is None or v.subject in subjects)) for v in run.verdicts.verdicts]
    verdicts = [verdict.model_copy(update=changes) if is_meant else verdict for verdict, is_meant in known]
    return replace(run, verdicts=run.verdicts.model_copy(update={"verdicts": verdicts}))


# --- the table


def test_every_gate_bears_on_the_claims_of_one_question_and_every_claim_has_gates():
    questions = {claim.id: claim.question for claim in CLAIMS}
    assert len(questions) == len(CLAIMS)
    assert set(questions.values()) == set(QUESTIONS)
    for gate in GATES.values():
        assert len({questions[claim] for claim in (*gate.claims, *gate.bears_on)}) == 1, gate.id
        assert set(gate.claims).isdisjoint(gate.bears_on), gate.id
    for claim in CLAIMS:
        assert bool(catalogue.proving(claim.id)) is not (claim.drills or claim.optional), claim.id
        assert not (claim.drills and catalogue.bearing_on(claim.id)), claim.id  # no run says anything about it
        assert set(claim.shows) <= {*catalogue.proving(claim.id), *catalogue.bearing_on(claim.id)}, claim.id


# --- what was asked


def test_a_whole_healthy_gpu_cluster_passes_all_questions_but_the_drills():
    all_answers = answers(playbook(4, GPU_CLUSTER))
    assert marks(all_answers) == {1: Mark.PASS, 2: Mark.PASS, 3: Mark.PASS, 4: Mark.PASS, 5: Mark.PASS, 6: Mark.PARTLY}
    assert claim(all_answers, "diagnosable").mark is Mark.NOT_ASKED


def test_a_number_without_a_limit_is_shown_and_its_claim_is_not_proven():
    """The bandwidth of a cluster whose profile has no number: it was `not seen`, and not printed."""
    speed, unlimited = "nccl.all_reduce.busbw", {"outcome": Outcome.NO_LIMIT, "limit": None, "kind": Kind.UNDECLARED}
    all_answers = answers([changing(run, [speed], ["4-nodes"], **unlimited) for run in playbook(4, GPU_CLUSTER)])
    between = claim(all_answers, "speed-between")
    assert (between.mark, between.is_without_limit) == (Mark.PARTLY, True)
    assert "Bandwidth of collectives [4-nodes]" in (between.why or "")
    assert any(in_words(number).endswith(", no limit") for number in between.numbers)
    made = headline(Outcome.PASS, all_answers, [], list(PHASES))
    assert (made.mark, made.decision) == (Mark.PARTLY, Decision.EXCEPT)
    assert between.says in made.because


def test_one_node_says_nothing_of_a_shared_filesystem_nor_of_links_between_nodes():
    all_answers = answers(playbook(1, GPU_CLUSTER))
    assert marks(all_answers)[3] is Mark.NOT_ASKED
    assert claim(all_answers, "one-folder").why == "it needs 2 nodes, 1 took part"
    for name in ("over-the-fabric", "speed-between", "trains-across", "nodes-alike"):
        assert claim(all_answers, name).mark is Mark.NOT_ASKED, name
    assert marks(all_answers)[4] is Mark.PARTLY
    assert marks(all_answers)[5] is Mark.PARTLY
    across = "not asked: DDP, FSDP and HSDP really run as such across nodes"
    assert any(text.startswith(across) for text in all_answers[4].reservations)
    # of a claim that lost its second node after discovery, the nodes that were left are counted
    all_answers = answers([healthy("discovery", 2, GPU_CLUSTER), healthy("smoke", 1, GPU_CLUSTER)])
    assert claim(all_answers, "one-folder").why == "it needs 2 nodes, 1 took part"


def test_discovery_and_smoke_alone_do_not_answer_for_nccl_or_training():
    all_answers = answers([healthy("discovery", 2, GPU_CLUSTER), healthy("smoke", 2, GPU_CLUSTER)])
    assert marks(all_answers) | {1: None, 6: None} == {
        1: None, 2: Mark.PASS, 3: Mark.PASS, 4: Mark.NOT_ASKED, 5: Mark.NOT_ASKED, 6: None,
    }  # fmt: skip


def test_pairs_alone_are_part_of_an_answer():
    """The page said PASS to "does NCCL really use the interconnect, at full speed"."""
    all_answers = answers([healthy("nccl_pairwise", 4, GPU_CLUSTER)])
    assert marks(all_answers)[4] is Mark.PARTLY
    assert claim(all_answers, "no-slow-link").mark is Mark.PASS
    assert marks(answers([healthy("nccl_pairwise", 4, LOCAL_CLUSTER)]))[4] is Mark.NOT_PROVEN


def test_what_did_not_run_is_incomplete():
    all_answers = answers([healthy("discovery", 2, GPU_CLUSTER)], not_run=["smoke"])
    assert (marks(all_answers)[3], claim(all_answers, "one-folder").why) == (Mark.INCOMPLETE, "not run: smoke")


def test_nothing_is_claimed_for_a_node_that_was_left_out():
    judged = [healthy("discovery", 4, GPU_CLUSTER), healthy("smoke", 3, GPU_CLUSTER), healthy("nccl_scaling", 3, {})]
    all_answers = answers(judged, left_out=["n3"])
    shared = claim(all_answers, "one-folder")
    assert (shared.mark, shared.why) == (Mark.PARTLY, "not on n3 (excluded)")
    assert claim(all_answers, "gpus-present").mark is Mark.PASS, "discovery asked n3 too"
    rehearsed = claim(all_answers, "one-communicator")
    assert rehearsed.mark is Mark.NOT_PROVEN
    assert "not on n3 (excluded)" in str(rehearsed.why)
    assert claim(answers(judged), "one-folder").mark is Mark.PASS


def test_a_claim_whose_gates_are_all_not_applicable_is_not_asked_and_says_the_reason():
    healthy_gpus = claim(answers(playbook(2, LOCAL_CLUSTER, "local-cpu")), "gpus-healthy")
    assert (healthy_gpus.mark, healthy_gpus.why) == (Mark.NOT_ASKED, "placeholder GPUs have no driver")


# --- on what it was asked


def test_one_scale_over_the_fabric_is_none_where_another_went_over_tcp():
    over = Observation(quantity="nccl.transport", subject="2-nodes", value="rdma-verbs", unit="text", evidence="e")
    tcp = over.model_copy(update={"subject": "4-nodes", "value": "tcp:eth0"})
    run = healthy("nccl_scaling", 4, GPU_CLUSTER)
    for observed, mark in (([over], Mark.PASS), ([over, tcp], Mark.NOT_PROVEN)):
        seen = [*run.observations, *observed]
        assert claim(answers([replace(run, observations=seen)]), "over-the-fabric").mark is mark


def test_placeholders_gloo_and_tcp_rehearse_an_answer():
    all_answers = answers(playbook(2, LOCAL_CLUSTER, "local-cpu"))
    assert (marks(all_answers)[1], marks(all_answers)[4], marks(all_answers)[5]) == (Mark.NOT_PROVEN,) * 3
    assert (marks(all_answers)[2], marks(all_answers)[3]) == (Mark.PASS, Mark.PASS)
    assert "no NCCL was seen at work" in (claim(all_answers, "one-communicator").why or "")
    assert claim(all_answers, "gpus-present").mark is Mark.NOT_PROVEN


SIMULATED = "GPU-00000000-0000-f70a-2298-3a4a88c0bab8"


@case_for_each(
    {"quantity": "discovery.gpu.model", "subject": f"n0/{SIMULATED}", "value": "NVIDIA H100 80GB HBM3"},
    {"quantity": "smoke.binding.gpu", "subject": "n0/task0", "value": SIMULATED},
    {"quantity": "smoke.binding.openable", "subject": "n0/task0", "value": ["GPU-1234", SIMULATED]},
    {"quantity": "load.counter.before.gpus", "subject": f"n0/{SIMULATED}", "value": 0},
    ids=lambda observation: observation["quantity"],
)
def test_a_simulated_gpu_anywhere_rehearses_all_that_needs_hardware(observation):
    """The driver answers, NCCL and a fabric were seen at work: all of it may come from programs that stand in."""
    runs = playbook(4, GPU_CLUSTER)
    runs[0].observations.append(Observation(unit="text", evidence="e", why=None, **observation))
    all_answers = answers(runs)
    rehearsed = dict.fromkeys((1, 4, 5), Mark.NOT_PROVEN)
    assert marks(all_answers) == {2: Mark.PASS, 3: Mark.PASS, 6: Mark.PARTLY, **rehearsed}
    assert all_answers[0].reservations == ["not proven: the GPUs are simulated: their UUIDs say so"]


@pytest.mark.parametrize("phase", ["discovery", "smoke", "nccl_scaling", "run_1gpu"])
def test_a_run_that_shows_no_gpu_at_all_proves_nothing_about_one(phase):
    asked = [answer for answer in answers([healthy(phase, 2, {})]) if answer.question in (1, 4, 5)]
    assert Mark.PASS not in {claim.mark for answer in asked for claim in answer.claims}


@for_each("sockets", "tcp:eth0", "rdma-verbs+sockets", "unknown:Mesh", "rdma-verbs+unknown:Mesh", None)
def test_sockets_between_nodes_rehearse_the_fabric_and_prove_the_communicator(transport):
    shows = GPU_CLUSTER | {"nccl": {"nccl.backend": "nccl", "nccl.transport": transport}}
    all_answers = answers([healthy("nccl_scaling", 2, shows)])
    assert claim(all_answers, "one-communicator").mark is Mark.PASS
    assert claim(all_answers, "speed-between").mark is Mark.NOT_PROVEN


# --- number and scope


def test_an_answer_carries_its_number_at_the_widest_scale_and_its_scope():
    run = healthy("nccl_scaling", 4, GPU_CLUSTER)
    speed = ["nccl.all_reduce.busbw"]
    fast = changing(run, speed, at="8GiB", limit=280.0, value=400.0)
    all_answers = answers([changing(fast, speed, ["4-nodes"], value=300.0)])
    for name, words in (
        ("speed-between", "all_reduce 300 GB/s at 8GiB on 4-nodes, floor 280"),
        ("speed-inside", "all_reduce 400 GB/s at 8GiB on 1-node, floor 280"),
    ):
        assert [in_words(number) for number in claim(all_answers, name).numbers] == [words]
    assert all_answers[3].line.startswith("all_reduce 300 GB/s at 8GiB on 4-nodes, floor 280; transport 1 on 4-nodes; ")
    assert all_answers[3].line.endswith(" verdicts on 4 nodes x 2 GPUs")


def test_what_failed_is_named_and_what_is_only_missing_is_not():
    both = (("n1", Outcome.FAIL), ("n0", Outcome.INCOMPLETE))
    verdicts = [a_verdict("discovery.gpu.count", node, outcome) for node, outcome in both]
    all_answers = answers([judged_of(*verdicts, run=a_run("discovery"))])
    assert (all_answers[0].mark, all_answers[0].line) == (Mark.FAIL, "GPUs that are there and answer [n1]")


def test_a_gate_that_failed_in_several_runs_or_bears_on_several_claims_is_named_once_in_the_line():
    """Five failing runs of one playbook made a page of more than two screens."""
    drivers, isolated = ["discovery.gpu.driver", "discovery.gpu.persistence"], ["smoke.gpu.isolated"]
    first = changing(healthy("discovery", 3, GPU_CLUSTER), drivers, ["n0", "n1"], outcome=Outcome.FAIL)
    last = changing(healthy("smoke", 3, GPU_CLUSTER), isolated, ["n0", "n2"], outcome=Outcome.FAIL)
    all_answers = answers([first, first, last])
    of_isolation = "No GPU for a job that requested none [n0, n2]"
    of_drivers = "GPUs that are the same everywhere, A driver that stays loaded [n0, n1]"
    assert all_answers[0].line == f"{of_drivers}; {of_isolation}"
    assert claim(all_answers, GATES["smoke.gpu.isolated"].claims[0]).why == of_isolation


def test_of_many_gates_of_a_claim_the_first_are_named_and_the_others_counted():
    run = healthy("discovery", 1, GPU_CLUSTER)
    all_answers = answers([changing(run, GATES, outcome=Outcome.FAIL)])
    gates = {*catalogue.proving("gpus-healthy"), *catalogue.bearing_on("gpus-healthy")} & set(run.run.planned)
    assert (claim(all_answers, "gpus-healthy").why or "").endswith(f"; and {len(gates) - NAMED} more")


# --- drills


LOCAL = "1 of 1 drills found; the faults were made on a local cluster: bringup drill --anywhere"


@case_for_each(
    ({}, Mark.PASS, "1 of 1 drills found"),
    ({"drill": "no-such"}, Mark.INCOMPLETE, "1 of 1 drills found; no run beside drill.json shows it: no-such"),
    ({"subject": "n0"}, Mark.INCOMPLETE, "1 of 1 drills found; no run beside drill.json shows it: gpu-missing"),
    ({"right_subject": False}, Mark.FAIL, "0 of 1 drills found; not: gpu-missing"),
    ({"false_alarms": ["x"]}, Mark.FAIL, "0 of 1 drills found; not: gpu-missing"),
)
def test_faults_count_as_diagnosable_when_drills_of_this_report_found_them(change, mark, line):
    assert diagnosable(GPU_CLUSTER, a_drill_result(**change)) == (mark, line)


def diagnosable(cluster: dict[str, dict[str, str]], *results: DrillResult, **how: Any) -> tuple[Mark, str | None]:
    drills = drilled(*(results or [a_drill_result()]), **how)
    of_drills = claim(answers(playbook(2, cluster), drills=[drills]), "diagnosable")
    return of_drills.mark, of_drills.why


def test_a_record_without_the_runs_of_its_drills_proves_nothing():
    mark, why = diagnosable(GPU_CLUSTER, runs={})
    assert (mark, "no run beside drill.json shows it: gpu-missing" in (why or "")) == (Mark.INCOMPLETE, True)
    for name, verdict, phase in (
        ("r-x", a_verdict("discovery.gpu.count", "n1", Outcome.PASS), "discovery"),
        ("r-x", a_verdict("discovery.gpu.count", "n1"), "smoke"),
        ("another", a_verdict("discovery.gpu.count", "n1"), "discovery"),  # a run of these drills has their name
    ):
        run = judged_of(verdict, run=a_run(phase, name=name, plan={}))
        for result in (a_drill_result(), a_drill_result(outcome=Outcome.PASS)):  # any healthy run shows the second
            assert diagnosable(GPU_CLUSTER, result, runs={"gpu-missing": run})[0] is Mark.INCOMPLETE


@for_each(
    ({"cluster": "other"}, "on another cluster"),
    ({"controller": "other"}, "on another cluster"),
    ({"nodes": ["n0", "n9"]}, "on nodes of no run here (n9)"),
    ({"opened_at": "2025-01-01T00:00:00.5Z"}, "365 days from these runs"),
)
def test_what_was_found_elsewhere_says_nothing_about_this_cluster(run, words):
    mark, why = diagnosable(GPU_CLUSTER, run=run)
    assert (mark, words in (why or "")) == (Mark.NOT_ASKED, True)
    assert diagnosable(LOCAL_CLUSTER, run=run)[0] is Mark.NOT_PROVEN


def test_a_sites_own_drill_that_nothing_fails_of_is_shown_by_no_healthy_run():
    gate = "discovery.gpu.count"
    run = judged_of(a_verdict(gate, "n1", Outcome.PASS), run=a_run(name="r-x"))
    own = {"of-a-site": replace(run, own={gate: GATES[gate]})}
    result = a_drill_result(drill="of-a-site", outcome=Outcome.PASS)
    assert diagnosable(GPU_CLUSTER, result, runs=own)[0] is Mark.INCOMPLETE


def test_faults_of_simulated_gpus_prove_nothing():
    uuid = "GPU-00000000-0000-8575-9a7a-461ee90213dc"
    seen = Observation(quantity="discovery.gpu.uuid", subject="n1", value=uuid, unit="text", evidence="e", why=None)
    run = judged_of(a_verdict("discovery.gpu.count", "n1"), run=a_run(name="r-x"), observations=(seen,))
    assert "simulated" in (diagnosable(GPU_CLUSTER, runs={"gpu-missing": run})[1] or "")


def test_drills_of_a_local_cluster_prove_nothing_of_another_and_take_nothing_from_it():
    assert diagnosable(GPU_CLUSTER, place="local-cluster") == (Mark.NOT_ASKED, LOCAL)
    assert diagnosable(LOCAL_CLUSTER, place="local-cluster") == (Mark.NOT_PROVEN, LOCAL)
    alone = answers([], drills=[drilled(a_drill_result(), place="local-cluster")])
    assert (claim(alone, "diagnosable").mark, stand_ins_of([claim(alone, "diagnosable")])) == (Mark.NOT_PROVEN, LOCAL)
