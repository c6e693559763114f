"""A rank that hangs or stands still in the collectives is told from those that wait for it."""

from __future__ import annotations

import io

import bench
import collectives
import progress
import pytest
from bringup.derive.observed import derive
from bringup.evidence import facts as facts_file
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Verdict
from factory import a_run
from facts import Facts
from loops import for_each
from probing import told_by
from runs_for_tests import FAIL, OPEN, PASS, Fact, as_read, judged, parsed_of

GATES = ("nccl.rank.finished", "nccl.step", "nccl.stall", "nccl.rank.stall")
PLACES = ("n0/rank0", "n0/rank1", "n1/rank2", "n1/rank3")
IN = (90, 89, "in all_to_all@8KiB, at all_to_all_single (distributed_c10d.py:5060)")
BARRIER = (91, 90, "in the barrier before all_to_all@8KiB, at barrier (distributed_c10d.py:5313)")
OUTSIDE = "after the barrier before all_to_all@8KiB, at in_the_middle (faults.py:70)"
EARLY, AFTER = (89, 89, OUTSIDE), (90, 90, OUTSIDE)
LastWords = tuple[int, int, str] | None


def hung(*last_words: LastWords, code: int = 1) -> list[Fact]:
    """last_words: (entered, left, where) of each rank; None: nothing."""
    facts: list[Fact] = [("nccl.step.exit_code", "2-nodes", code, None, "raw/collectives-2.rc")]
    for number, (place, words) in enumerate(zip(PLACES, last_words, strict=True), start=1):
        where = f"raw/collectives-2.jsonl:{number}"
        if words is not None:
            facts.append(("nccl.rank.entered", place, words[0], words[2], where))
            facts.append(("nccl.rank.left", place, words[1], None, where))
    return facts


def finished(file: str, *places: str) -> list[Fact]:
    return [("nccl.rank.state", place, "finished", None, f"raw/{file}.jsonl:9") for place in places]


def unhealthy(facts: Parsed | list[Fact], phase: str = "nccl_monitoring") -> dict[str, Verdict]:
    """Subject -> verdict; the gate's name stands before that of another gate than of the ends."""
    parsed = as_read(facts if isinstance(facts, Parsed) else parsed_of(facts))
    by_gate = judged(parsed, phase, ("n0", "n1"), profile_name="local-cpu")
    return {
        verdict.subject if verdict.gate in GATES[:2] else which: verdict
        for which, verdict in by_gate.items()
        if verdict.gate in GATES and verdict.outcome is not PASS
    }


@for_each(
    ("ranks", "accused"),
    [
        ((IN, IN, EARLY, IN), {"n1/rank2": "hung"}),  # it never came to the collective
        ((IN, IN, IN, None), {"n1/rank3": "silent"}),
        ((IN, IN, None, None), {"n1/rank2": "silent", "n1/rank3": "silent"}),
        ((BARRIER, IN, IN, None), {"n1/rank3": "silent"}),  # others wait for it in an earlier collective
        # as in a ring, where the neighbours of the rank that hangs wait one collective before the others
        ((BARRIER, IN, AFTER, IN), {"n1/rank2": "hung"}),
        ((IN, IN, IN, IN), {}),
        ((IN, None, None, None), {}),  # their words were lost
    ],
)
def test_the_rank_that_hung_or_said_nothing_is_accused_and_nobody_who_waits(ranks, accused) -> None:
    by_subject = unhealthy(hung(*ranks))
    failed = {place: v.value for place, v in by_subject.items() if place in PLACES and v.outcome is FAIL}
    assert failed == accused
    assert {by_subject[place].outcome for place in PLACES if place not in accused} <= {OPEN}


def test_the_words_of_those_that_waited_say_for_whom() -> None:
    by_subject = unhealthy(hung(IN, IN, EARLY, IN))
    assert "had entered 89 collectives, n0/rank0 90" in str(by_subject["n1/rank2"].cause)
    assert f"waited {IN[2]}; first n1/rank2 hung" in str(by_subject["n0/rank1"].cause)
    assert "first n1/rank2 hung: after the barrier before all_to_all@8KiB" in str(by_subject["2-nodes"].cause)
    silent = unhealthy(hung(IN, IN, IN, None))["n1/rank3"]
    assert "it said nothing, while 3 ranks waited: n0/rank0 in all_to_all@8KiB" in str(silent.cause)
    assert "no rank was behind the others" in str(unhealthy(hung(IN, IN, IN, IN))["n0/rank0"].cause)


def test_a_step_that_ended_early_leaves_the_end_of_its_ranks_open_and_a_late_rank_that_came_to_the_end_finished():
    by_subject = unhealthy(hung(None, None, None, None, code=3))
    assert {by_subject[place].outcome for place in PLACES} == {OPEN}
    assert "the step ended with exit code 3" in str(by_subject["n1/rank3"].cause)
    late = unhealthy([*hung(IN, IN, None, IN, code=0), *finished("collectives-2", *PLACES)])
    assert late.keys().isdisjoint({*PLACES, "2-nodes"})
    # the end at one number of nodes says nothing of another
    by_subject = unhealthy(finished("collectives-1", *PLACES[:2]), "nccl_scaling")
    assert {by_subject[place].outcome for place in PLACES} == {OPEN}


@for_each("text", ["soon", "0", "1", "-5", "86401", "1.5"])
def test_a_patience_that_is_no_number_of_seconds_is_refused(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINGUP_HANG_S", text)
    with pytest.raises(ValueError, match=f"BRINGUP_HANG_S={text}: expected seconds, from 2 to 86400"):
        progress.hang_s()


def test_the_patience_with_a_hang_is_not_the_one_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BRINGUP_START_S", "7")
    monkeypatch.delenv("BRINGUP_HANG_S", raising=False)
    assert progress.hang_s() == 120


def test_a_rank_says_what_it_had_entered_and_left_and_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    here = progress.Progress()
    here.enter("all_gather@1MiB")
    here.leave()
    here.enter("all_gather@1MiB")
    stream = io.StringIO()
    here.say("2-nodes", 3, Facts("progress", stream))
    entered, left = facts_file.parse(stream.getvalue(), "raw/collectives-2.jsonl").observations[:2]
    assert (entered.quantity, entered.subject, entered.value) == ("nccl.rank.entered", "n1/rank3", 2)
    assert str(entered.why).startswith("in all_gather@1MiB, at ")
    assert (left.quantity, left.value) == ("nccl.rank.left", 1)


def test_a_rank_that_hangs_in_a_pair_of_nodes_is_the_reason_why_the_link_was_not_measured() -> None:
    file, where = "raw/pairs-1-1-n0-n1.jsonl", "in all_reduce@1GiB, at run (bench.py:120)"
    facts: list[Fact] = [("nccl.quiet", "n0--n1", 60.2, None, f"{file}:1")]
    facts += [("nccl.rank.entered", place, 40, where, f"{file}:1") for place in PLACES[:3]]
    derived = derive(Seen(as_read(parsed_of(facts)).observations), a_run("nccl_pairwise"))
    (link,) = [observation for observation in derived.observations if observation.quantity == "nccl.pair.link"]
    assert (link.subject, link.value) == ("n0--n1", None)
    assert "first n1/rank3 silent: it said nothing, while 3 ranks waited" in str(link.why)
    assert any(note.startswith(f"{file}: n0--n1: first n1/rank3 silent") for note in derived.problems)


# ---- a pause in the middle of a collective: how long, in which one, and which rank stood still

MEMBERS = [("n0", 0, 11, "a"), ("n0", 1, 12, "b"), ("n1", 2, 13, "a"), ("n1", 3, 14, "b")]
BEATING = (0.0, None, None)
STOPPED = (20.01, "all_to_all@8KiB", 0.02)
EVEN = (0.0, "repetition 1 of broadcast@8KiB took 0.004 s, the median is 0.003 s")
LONG = bench.stall([0.004, 0.004, 20.02, 0.005, 0.004, 0.004, 0.004], "all_to_all@8KiB")


def stalled(standstills: list[tuple[float, str | None, float | None]], *stalls: tuple[float, str]) -> dict[str, str]:
    """`gate subject` -> what is said, of what does not pass."""
    parsed = told_by(lambda probe: collectives.say_stalls(probe, "2-nodes", MEMBERS, list(stalls), standstills))
    return {which: f"{v.observed} {v.cause}" for which, v in unhealthy(parsed).items() if v.gate.endswith(".stall")}


def test_the_longest_repetition_is_told_beyond_the_median_and_one_of_less_than_twice_it_is_no_stall() -> None:
    seconds, words = LONG
    assert round(seconds, 3) == 20.016
    assert words == "repetition 3 of all_to_all@8KiB took 20.02 s, the median is 0.004 s"
    assert bench.stall([10.0, 18.0, 10.0], "all_reduce@8GiB")[0] == 0.0


def test_the_rank_that_was_stopped_fails_and_those_that_waited_pass() -> None:
    words = stalled([BEATING, BEATING, STOPPED, BEATING], EVEN, LONG)
    assert words.keys() == {"nccl.stall 2-nodes", "nccl.rank.stall n1/rank2"}
    assert "all_to_all@8KiB took 20.02 s" in words["nccl.stall 2-nodes"]
    assert "n1/rank2 stood still" in words["nccl.stall 2-nodes"]
    assert "used 0.02 s of CPU: it was stopped, or got no core" in words["nccl.rank.stall n1/rank2"]
    nobody = stalled([BEATING] * 4, LONG, EVEN)
    assert nobody.keys() == {"nccl.stall 2-nodes"}
    assert "no rank stood still itself" in nobody["nccl.stall 2-nodes"]
    assert stalled([BEATING] * 4, EVEN, EVEN) == {}
