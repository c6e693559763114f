"""The overall word is that of the answers: no bare PASS stands above a question that is open."""

import re
from dataclasses import replace

import factory
from bringup.drill.evidence import Drilled
from bringup.kernel.judge import Judged
from bringup.kernel.plan import profile
from bringup.kernel.plan.catalogue import GATES
from bringup.kernel.plan.expectation import MEASURED_HERE
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Answer, ClaimAnswer, Decision, Headline, Kind, Mark, Measured, Outcome
from bringup.report import next_steps, page, text
from bringup.report.collection import Collection, headline
from bringup.report.links import nowhere
from factory import GPU_CLUSTER, a_drill_result, a_run, a_verdict, drilled, gathered, healthy, judged_of, playbook
from loops import for_each


def collection_of(*judged: Judged, drills: tuple[Drilled, ...] = ()) -> Collection:
    return Collection(judged=list(judged), drills=list(drills))


def of(*judged: Judged, drills: tuple[Drilled, ...] = ()) -> Headline:
    return collection_of(*judged, drills=drills).headline


def test_a_healthy_run_on_placeholders_is_no_pass_and_a_healthy_gpu_cluster_lacks_only_the_drills():
    """The page said PASS, in green, of a cluster without any GPU."""
    made = of(*playbook(2, factory.LOCAL_CLUSTER))
    assert text.headline(made) == "NOT PROVEN: nothing failed; no GPU, NCCL or fabric was seen at work"
    assert made.decision is Decision.OPEN
    made = of(*playbook(4, GPU_CLUSTER))
    assert text.headline(made) == "PARTLY: nothing failed; not all was asked of question 6"
    assert made.decision is Decision.ACCEPT
    assert "bringup drill --anywhere" in made.because
    made = of(*playbook(4, GPU_CLUSTER), drills=(drilled(a_drill_result()),))
    assert (made.mark, made.decision, text.headline(made)) == (Mark.PASS, Decision.ACCEPT, "PASS")


def changed(judged: Judged, gate: str, **changes: object) -> Judged:
    """The same run, in which the verdicts of a gate are others."""
    known = judged.verdicts.verdicts
    assert gate in {verdict.gate for verdict in known}
    verdicts = [verdict.model_copy(update=changes) if verdict.gate == gate else verdict for verdict in known]
    made = judged.verdicts.model_copy(update={"verdicts": verdicts, "outcome": changes["outcome"]})
    return replace(judged, verdicts=made)


def without(judged: Judged, gate: str, cause: str) -> Judged:
    return changed(judged, gate, outcome=Outcome.INCOMPLETE, kind=Kind.UNKNOWN, cause=cause, value=None)


def test_who_accepts_is_told_of_how_many_nodes_which_were_set_aside_and_what_warned():
    """`accept: all six questions are answered` stood above 13 of 16 nodes, and above warnings."""
    aside = ["left aside: n13, n14 (gpu:h100:7)"]
    judged = playbook(4, GPU_CLUSTER)
    whole = collection_of(*judged)
    made = headline(whole.outcome, whole.answers, judged, [run.run.phase for run in judged], aside)
    assert made.decision is Decision.ACCEPT
    assert made.because.endswith("; of 4 nodes; left aside: n13, n14 (gpu:h100:7)")
    first, *others = judged
    made = of(changed(first, "discovery.rdma.flaps", outcome=Outcome.WARN), *others)
    assert made.decision is Decision.EXCEPT
    assert f"warned: {GATES['discovery.rdma.flaps'].guide.title}" in made.because


def test_a_cluster_that_made_its_own_floors_is_as_before_and_not_as_bought():
    """At a tenth of its bandwidth it passed floors of half of that, and was accepted without a word."""
    lab = profile.load("h100-8x400g")
    assert of(*(replace(run, profile=lab) for run in playbook(4, GPU_CLUSTER))).decision is Decision.ACCEPT
    learned = {"source": f"{MEASURED_HERE}nccl_scaling a on 2026-11-26: 38 GB/s"}
    expect = {gate: limit.model_copy(update=learned) for gate, limit in lab.expect.items()}
    own = [replace(run, profile=lab.model_copy(update={"expect": expect})) for run in playbook(4, GPU_CLUSTER)]
    made = of(*own)
    assert (made.mark, made.decision) == (Mark.PARTLY, Decision.EXCEPT)
    assert made.says == "nothing failed; some numbers have no limit, or only this cluster's own"
    whys = [claim.why or "" for answer in collection_of(*own).answers for claim in answer.claims]
    words = "compared with this cluster's own numbers alone (measured by nccl_scaling a on 2026-11-26)"
    assert sum(words in why for why in whys) >= 2


CLOSED = "not found out: the kernel log cannot be read: Permission denied"


def test_what_a_usual_account_never_sees_is_a_named_exception_and_what_could_have_been_seen_keeps_it_open():
    """An ordinary account could never come to `accept`: the kernel log is closed to it, and DCGM is not installed."""
    first, *others = playbook(4, GPU_CLUSTER)
    alone = without(first, "discovery.kernel_log.xid", CLOSED)
    made = of(alone, *others)
    assert (made.mark, made.decision) == (Mark.INCOMPLETE, Decision.EXCEPT)
    closed = "the kernel log is closed to this account (group systemd-journal)"
    assert made.because == f"not known here: {closed}; of 4 nodes"
    for gate, cause in (("discovery.kernel_log.xid", "no evidence arrived"), ("discovery.gpu.ecc", "not found out: x")):
        assert of(without(alone, gate, cause), *others).decision is Decision.OPEN
    assert of(alone).decision is Decision.OPEN  # the other phases did not run


def test_phases_that_did_not_run_are_what_is_missing_with_the_minutes_to_expect():
    made = of(healthy("discovery", 4, GPU_CLUSTER), healthy("smoke", 4, GPU_CLUSTER))
    assert text.headline(made).startswith("PARTLY: nothing failed; not all was asked of questions ")
    assert made.decision is Decision.OPEN
    assert made.because.startswith("missing, ")
    assert "minutes and the queue: node_sweep, nccl_scaling" in made.because


def test_a_failure_is_refused_and_names_nodes_and_gates_of_the_whole():
    passed = a_verdict("discovery.gpu.count", "n0", Outcome.PASS)
    bad = (a_verdict("discovery.gpu.count", "n1"), passed, a_verdict("discovery.slurm.proctrack", "job"))
    made = of(judged_of(*bad, run=a_run("discovery")))
    assert (made.mark, made.decision) == (Mark.FAIL, Decision.REFUSE)
    assert made.because == "1 broken: n1; not of one node: Processes can outlive their job"


def test_a_fault_of_the_whole_is_blamed_on_no_node_and_a_warned_node_is_suspected():
    """A slow filesystem made "0 of 4 nodes without a failure"; a node that only warned was counted as healthy."""
    nodes = ["n0", "n1", "n2", "n3"]
    slow = [a_verdict("smoke.fs.writes", node) for node in nodes]
    warned = a_verdict("load.tcp_sent_again", "n2", Outcome.WARN)
    made = of(judged_of(*slow, warned, a_verdict("smoke.compute.tflops", "n1"), run=a_run("smoke", nodes=nodes)))
    assert made.because == "1 broken: n1; 1 suspected: n2; not of one node: Shared folder"


def test_what_is_not_known_is_open_and_no_answers_are_no_pass():
    made = of(judged_of(a_verdict(outcome=Outcome.INCOMPLETE), run=a_run("discovery")))
    assert (made.mark, made.decision) == (Mark.INCOMPLETE, Decision.OPEN)
    assert made.says.startswith("question")
    assert of().mark is Mark.INCOMPLETE


def test_a_fault_that_was_not_found_is_refused_also_above_runs_that_passed():
    """A missed drill makes question 6 fail, and no verdict."""
    missed = drilled(a_drill_result(right_subject=False), runs={})
    for runs in (playbook(4, GPU_CLUSTER), []):
        made = of(*runs, drills=(missed,))
        assert (made.mark, made.decision) == (Mark.FAIL, Decision.REFUSE)
        assert made.because == "faults that were made on purpose were not found"


def test_training_that_did_not_run_is_not_accepted_where_other_phases_judge_the_same_gates():
    """A run of DDP alone judges the gates that FSDP has too."""
    runs = [run for run in playbook(4, GPU_CLUSTER) if "fsdp" not in run.run.phase and "hsdp" not in run.run.phase]
    made = of(*runs, drills=(drilled(a_drill_result()),))
    assert (made.mark, made.decision) == (Mark.PARTLY, Decision.OPEN)
    assert "run_fsdp_1node, run_fsdp_2node, run_hsdp_2node" in made.because


def test_a_warning_does_not_hide_what_was_not_asked():
    runs = playbook(2, GPU_CLUSTER)
    assert of(*runs).decision is Decision.OPEN, "no pair tells which of two nodes is slow"
    pairs = next(run for run in runs if run.run.phase == "nccl_pairwise")
    jittery = changed(pairs, "nccl.pair.link.steady", outcome=Outcome.WARN)
    assert of(*(jittery if run is pairs else run for run in runs)).decision is Decision.OPEN


def test_nodes_that_phases_of_all_nodes_did_not_see_are_not_accepted_and_phases_of_one_node_may_be_on_one():
    one_node = {stem for stem, phase in PHASES.items() if phase.max_nodes == 1}
    runs = [healthy(stem, 1 if stem in one_node else 4, GPU_CLUSTER) for stem in PHASES]
    assert one_node and of(*runs).decision is Decision.ACCEPT
    wide = of(healthy("discovery", 8, GPU_CLUSTER), *runs[1:], drills=(drilled(a_drill_result()),))
    assert (wide.mark, wide.because) == (Mark.PARTLY, "not all phases ran on n4, n5, n6, n7")
    fewer = [healthy(run.run.phase, 3, GPU_CLUSTER) if run.run.phase == "nccl_scaling" else run for run in runs]
    made = of(*fewer)
    assert (made.decision, made.because) == (Decision.OPEN, "not all phases ran on n3")


# --- a tile per question, with the number that is nearest to its limit


def number(name: str, value: float | str, limit: float | None, rule: str = "at_least") -> Measured:
    return Measured(name=name, value=value, unit="GB/s", rule=rule, limit=limit, at="8GiB", subject="2-nodes")


def tile(*numbers: Measured, mark: Mark = Mark.PASS, reservations: tuple[str, ...] = ()) -> page.Tile:
    about = {"mark": mark, "numbers": list(numbers), "why": None}
    claim = ClaimAnswer(claim="c", says="s", verdicts=1, nodes=["n0"], gpus_per_node=8, **about)
    answer = Answer(question=4, mark=mark, line="the line", reservations=list(reservations), claims=[claim])
    return page.tiles([answer])[0]


WITHOUT_A_LIMIT = ((), (number("b", "eth0", None),), (number("b", 3.0, None),), (number("b", 0.0, 10.0),))
FAR, NEAR = number("far", 400.0, 100.0), number("near", 390.0, 380.0)
LATENCY, LOOSE = number("latency", 9.9, 10.0, "at_most"), number("loose", 9.0, 10.0, "at_most")


@for_each(
    (tile(FAR, NEAR, LOOSE), "near 390 GB/s at 8GiB on 2-nodes, floor 380"),
    (tile(LATENCY, FAR), "latency 9.9 GB/s at 8GiB on 2-nodes, ceiling 10"),
    *((tile(*numbers), "1 of 1 statements are proven") for numbers in WITHOUT_A_LIMIT),
    (tile(mark=Mark.NOT_PROVEN), "0 of 1 statements are proven"),
    # what holds is not what failed
    (tile(FAR, mark=Mark.FAIL), "1 of 1 statements failed"),
    (tile(number("slow", 90.0, 100.0), mark=Mark.FAIL), "slow 90 GB/s at 8GiB on 2-nodes, floor 100"),
)
def test_the_number_is_the_one_nearest_to_its_limit_else_the_statements_are_counted(shown: page.Tile, says: str):
    assert shown.number == says


def test_what_failed_says_its_line_and_what_is_not_proven_says_why_in_whole_words():
    rehearsed = tile(mark=Mark.NOT_PROVEN, reservations=("not proven: x", "more"))
    assert [shown.reason for shown in (tile(mark=Mark.FAIL), rehearsed, tile())] == ["the line", "not proven: x", ""]
    long = tile(mark=Mark.NOT_PROVEN, reservations=("word " * 40,)).reason
    assert long.endswith("word …")
    assert len(long) <= page.MOST + 2


def test_the_page_of_a_healthy_gpu_cluster_has_a_tile_for_each_question_and_says_accept():
    html = page.render(gathered(*playbook(4, GPU_CLUSTER)))
    assert html.count('class="tile ') == 6
    assert re.search(r'<h1 id="top">Accept(, except)?</h1>', html)


def test_a_tile_of_what_failed_counts_the_checks_and_names_their_subjects():
    failed = (a_verdict("discovery.gpu.count", "n1"), a_verdict("discovery.gpu.model", "n0"))
    run = judged_of(*failed, run=a_run("discovery"))
    assert "</span> 2 broken: n0, n1." in page.render(gathered(run)), "the decision keeps the spaces of its words"
    collection = gathered(run)
    shown = page.tiles(collection.answers, collection.verdicts)[0]
    assert shown.answer.mark is Mark.FAIL
    assert (shown.number, shown.reason) == ("2 failed checks", "on n1, n0")


def test_checks_and_causes_add_up_in_the_sentence_the_tiles_and_the_cards():
    """A page said: 5 fail; 1 of 8 and 2 of 6 claims failed; and 3 more failures; four cards."""
    gates = ("discovery.gpu.count", "discovery.gpu.ecc", "discovery.rdma.active", "discovery.rdma.same")
    failed = [a_verdict(gate, node) for gate in gates for node in ("n0", "n1")]
    others = [
        a_verdict("discovery.os", "n0", Outcome.PASS),
        a_verdict("discovery.kernel", "n0", Outcome.WARN),
        a_verdict("discovery.gpu.model", "n0", Outcome.INCOMPLETE, kind=Kind.BLOCKED),
        a_verdict("discovery.shm", "n0", Outcome.INCOMPLETE, kind=Kind.UNDECLARED),
        a_verdict("discovery.swap", "n0", Outcome.NO_LIMIT, kind=Kind.UNDECLARED),
    ]
    run = judged_of(*failed, *others, run=a_run("discovery"))
    collection = gathered(run)
    cards = [card for card in next_steps.cards([run], nowhere) if card.outcome is Outcome.FAIL]
    assert next_steps.counted([run]) == (
        f"13 checks: 1 passed, 8 failed for {len(cards)} causes, 1 warned for 1 cause, "
        "1 incomplete as a consequence, 1 without the limit that the site asks for, 1 without a limit"
    )
    assert sum(card.count for card in cards) == 8
    shown = page.tiles(collection.answers, collection.verdicts)
    assert [tile.number for tile in shown if tile.answer.mark is Mark.FAIL] == ["4 failed checks", "4 failed checks"]
