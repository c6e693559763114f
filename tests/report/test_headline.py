"""The overall word is that of the answers: no bare PASS stands above a question that is open."""

from __future__ import annotations

from bringup.answers import answers
from bringup.judge import Judged
from bringup.records import Decision, DrillReport, Headline, Mark, Outcome
from bringup.report import text
from bringup.report.collection import Collection
from factory import a_drill_report, a_drill_result, a_run, a_verdict, judged_of
from healthy_cluster import GPU_CLUSTER, LOCAL_CLUSTER, healthy, playbook


def of(*judged: Judged, drills: tuple[DrillReport, ...] = ()) -> Headline:
    return Collection(list(judged), [], [], [], {}, drills=list(drills)).headline


def test_a_healthy_rehearsal_is_no_pass_and_no_reason_to_accept():
    """The page said PASS, in green, of a cluster without any GPU."""
    made = of(*playbook(2, LOCAL_CLUSTER))
    assert text.headline(made) == "REHEARSED: nothing failed; no GPU, NCCL or fabric was seen at work"
    assert made.decision is Decision.OPEN


def test_a_healthy_gpu_cluster_is_accepted_and_lacks_only_the_drills():
    made = of(*playbook(4, GPU_CLUSTER))
    assert text.headline(made) == "PARTLY: nothing failed; not all was asked of question 6"
    assert made.decision is Decision.ACCEPT
    assert "bringup drill --anywhere" in made.because


def test_with_its_drills_it_passes():
    made = of(*playbook(4, GPU_CLUSTER), drills=(a_drill_report(a_drill_result()),))
    assert (made.mark, made.decision, text.headline(made)) == (Mark.PASS, Decision.ACCEPT, "PASS")


def test_phases_that_did_not_run_are_what_is_missing_with_the_minutes_to_expect():
    made = of(healthy("discovery", 4, GPU_CLUSTER), healthy("smoke", 4, GPU_CLUSTER))
    assert text.headline(made).startswith("PARTLY: nothing failed; not all was asked of questions ")
    assert made.decision is Decision.OPEN
    assert made.because.startswith("missing, ")
    assert "minutes and the queue: node_sweep, nccl_scaling" in made.because


def test_a_failure_is_refused_and_names_nodes_and_gates_of_the_whole():
    run = judged_of(
        a_verdict("discovery.gpu.count", "n1"),
        a_verdict("discovery.gpu.count", "n0", Outcome.PASS),
        a_verdict("discovery.slurm.proctrack", "job"),
        run=a_run("discovery"),
    )
    made = of(run)
    assert (made.mark, made.decision) == (Mark.FAIL, Decision.REFUSE)
    assert made.because == "1 of 2 nodes without a failure; failed on n1; failed: discovery.slurm.proctrack"


def test_what_is_not_known_is_open():
    made = of(judged_of(a_verdict(outcome=Outcome.INCOMPLETE), run=a_run("discovery")))
    assert (made.mark, made.decision) == (Mark.INCOMPLETE, Decision.OPEN)
    assert made.says.startswith("question")


def test_no_answers_are_no_pass():
    assert answers([])
    assert of().mark is Mark.INCOMPLETE
