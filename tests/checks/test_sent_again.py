"""What is slow between nodes names the node that sends its data again; a pair's one number cannot tell which it is."""

from bringup.derive.blame import blame
from bringup.evidence.parsed import Seen
from bringup.records import Outcome, Verdict
from factory import a_run, a_verdict, judged_of

RUN = a_run("nccl_pairwise", ["n0", "n2", "n3"], plan={})


def blamed(*verdicts: Verdict) -> dict[str, str | None]:
    judged = blame(judged_of(*verdicts, run=RUN).verdicts, Seen(()), RUN)
    assert [v.outcome for v in judged.verdicts] == [v.outcome for v in verdicts], "no outcome changes"
    return {f"{v.gate} {v.subject}": v.cause for v in judged.verdicts}


def sent_again(node: str, share: float, outcome: Outcome = Outcome.WARN) -> Verdict:
    return a_verdict("load.tcp_sent_again", node, outcome, value=share)


def slow(subject: str, gate: str = "nccl.pair.slowest", outcome: Outcome = Outcome.FAIL) -> Verdict:
    return a_verdict(gate, subject, outcome, value=0.006).model_copy(update={"unit": "GB/s"})


def test_the_slow_link_names_the_node_that_sends_again():
    """The verdict named the direction n0->n2 alone, while n2 sent a fifth of its segments again."""
    causes = blamed(
        slow("job"), slow("n0--n2", "nccl.pair.link"), sent_again("n2", 0.218), sent_again("n0", 0.0, Outcome.PASS)
    )
    words = "n2 sent 21.8% of its data again (load.tcp_sent_again): look at what it sends first"
    assert causes["nccl.pair.slowest job"] == words
    assert causes["nccl.pair.link n0--n2"] == words


def test_the_one_that_sends_most_of_it_again_is_named():
    causes = blamed(slow("3-nodes", "nccl.all_reduce.busbw"), sent_again("n0", 0.03), sent_again("n2", 0.2))
    assert str(causes["nccl.all_reduce.busbw 3-nodes"]).startswith("n2 sent 20.0%")


def test_a_scale_without_this_node_gets_no_cause():
    """Inside one node nothing goes over the network, and two nodes are the first two."""
    slow_scales = [slow(scale, "nccl.all_reduce.busbw") for scale in ("1-gpu", "1-node", "2-nodes")]
    causes = blamed(*slow_scales, sent_again("n0", 0.0, Outcome.PASS), sent_again("n3", 0.2))
    assert [causes[f"nccl.all_reduce.busbw {v.subject}"] for v in slow_scales] == [None] * 3
    causes = blamed(slow("1-node", "nccl.all_reduce.busbw"), sent_again("n0", 0.2))
    assert causes["nccl.all_reduce.busbw 1-node"] is None


def test_a_link_of_others_and_what_passed_get_no_cause():
    causes = blamed(slow("n0--n3", "nccl.pair.link"), slow("job", outcome=Outcome.PASS), sent_again("n2", 0.2))
    assert causes["nccl.pair.link n0--n3"] is None
    assert causes["nccl.pair.slowest job"] is None


def test_without_a_node_that_sends_again_nothing_changes():
    assert blamed(slow("job"), sent_again("n2", 0.0, Outcome.PASS))["nccl.pair.slowest job"] is None
