"""A rank that hangs in the collectives is told from those that wait for it."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from bringup import judge
from bringup.derive.observed import derive
from bringup.evidence import facts as facts_file
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import profile
from bringup.records import Outcome, Verdict
from factory import a_run

sys.path.append(str(Path(__file__).resolve().parents[3] / "infrastructure-validation/probes"))
import progress
from facts import Facts
from runs_for_tests import as_read

GATE = "nccl.rank.finished"
PLACES = ("n0/rank0", "n0/rank1", "n1/rank2", "n1/rank3")
IN = "in all_to_all@8KiB, at all_to_all_single (distributed_c10d.py:5060)"
BARRIER = "in the barrier before all_to_all@8KiB, at barrier (distributed_c10d.py:5313)"
AFTER = "after the barrier before all_to_all@8KiB, at in_the_middle (faults.py:70)"


def hung(*last_words: tuple[int, int, str] | None, code: int | None = 1) -> Parsed:
    """said: (entered, left, where) of each rank; None: nothing."""
    parsed = Parsed()
    for line, (place, words_of_rank) in enumerate(zip(PLACES, last_words, strict=True), start=1):
        if words_of_rank is not None:
            entered, left, where = words_of_rank
            parsed.saw("nccl.rank.entered", place, entered, "count", f"raw/collectives-2.jsonl:{line}", where)
            parsed.saw("nccl.rank.left", place, left, "count", f"raw/collectives-2.jsonl:{line}")
    if code is not None:
        parsed.saw("nccl.step.exit_code", "2-nodes", code, "count", "raw/collectives-2.rc")
    return parsed


def judged(parsed: Parsed, phase: str = "nccl_monitoring") -> dict[str, Verdict]:
    run = a_run(phase)
    parsed.add(derive(Seen(as_read(parsed).observations), run))
    verdicts = judge.judge(run, profile.load("local-cpu"), parsed).verdicts
    return {
        verdict.subject: verdict
        for verdict in verdicts
        if verdict.gate in (GATE, "nccl.step") and verdict.outcome is not Outcome.PASS
    }


def accused(verdict_of: dict[str, Verdict]) -> dict[str, object]:
    return {
        place: strategy.value
        for place, strategy in verdict_of.items()
        if strategy.gate == GATE and strategy.outcome is Outcome.FAIL
    }


def test_the_rank_that_never_came_to_the_collective_hung_and_the_others_waited() -> None:
    by_subject = judged(hung((90, 89, IN), (90, 89, IN), (89, 89, AFTER), (90, 89, IN)))
    assert accused(by_subject) == {"n1/rank2": "hung"}
    assert "had entered 89 collectives, n0/rank0 90" in str(by_subject["n1/rank2"].cause)
    assert by_subject["n0/rank1"].outcome is Outcome.INCOMPLETE
    assert f"waited {IN}; first n1/rank2 hung" in str(by_subject["n0/rank1"].cause)
    assert "first n1/rank2 hung: after the barrier before all_to_all@8KiB" in str(by_subject["2-nodes"].cause)


def test_a_rank_that_said_nothing_while_the_others_waited_is_silent() -> None:
    by_subject = judged(hung((90, 89, IN), (90, 89, IN), (90, 89, IN), None))
    assert accused(by_subject) == {"n1/rank3": "silent"}
    assert "it said nothing, while 3 ranks waited: n0/rank0 in all_to_all@8KiB" in str(by_subject["n1/rank3"].cause)


def test_half_of_the_ranks_that_said_nothing_are_named() -> None:
    by_subject = judged(hung((90, 89, IN), (90, 89, IN), None, None))
    assert accused(by_subject) == {"n1/rank2": "silent", "n1/rank3": "silent"}


def test_who_waits_for_a_silent_rank_in_an_earlier_collective_is_not_accused() -> None:
    by_subject = judged(hung((91, 90, BARRIER), (90, 89, IN), (90, 89, IN), None))
    assert accused(by_subject) == {"n1/rank3": "silent"}


def test_who_waits_inside_an_earlier_collective_is_a_victim_of_the_one_that_is_outside() -> None:
    """As in a ring, where the neighbours of the rank that hangs wait one collective before the others."""
    by_subject = judged(hung((91, 90, BARRIER), (90, 89, IN), (90, 90, AFTER), (90, 89, IN)))
    assert accused(by_subject) == {"n1/rank2": "hung"}


def test_where_all_have_entered_the_same_collective_nobody_is_accused() -> None:
    by_subject = judged(hung(*[(90, 89, IN)] * 4))
    assert accused(by_subject) == {}
    assert {by_subject[place].outcome for place in PLACES} == {Outcome.INCOMPLETE}
    assert "no rank was behind the others" in str(by_subject["n0/rank0"].cause)


def test_where_most_are_silent_their_words_were_lost() -> None:
    assert accused(judged(hung((90, 89, IN), None, None, None))) == {}


def test_a_step_that_ended_early_leaves_the_end_of_its_ranks_open() -> None:
    by_subject = judged(hung(None, None, None, None, code=3))
    assert {by_subject[place].outcome for place in PLACES} == {Outcome.INCOMPLETE}
    assert "the step ended with exit code 3" in str(by_subject["n1/rank3"].cause)


def test_a_rank_that_was_late_and_came_to_the_end_finished() -> None:
    parsed = hung((90, 89, IN), (90, 89, IN), None, (90, 89, IN), code=0)
    for place in PLACES:
        parsed.saw("nccl.rank.state", place, "finished", "text", "raw/collectives-2.jsonl:9")
    assert judged(parsed) == {}


def test_the_end_at_one_number_of_nodes_says_nothing_of_another() -> None:
    parsed = Parsed()
    for place in PLACES[:2]:
        parsed.saw("nccl.rank.state", place, "finished", "text", "raw/collectives-1.jsonl:9")
    by_subject = judged(parsed, "nccl_scaling")
    assert {by_subject[place].outcome for place in PLACES} == {Outcome.INCOMPLETE}


@pytest.mark.parametrize("text", ["soon", "0", "1", "-5", "86401", "1.5"])
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
    parsed, file = Parsed(), "raw/pairs-1-1-n0-n1.jsonl"
    for line, place in enumerate(PLACES[:3], start=1):
        parsed.saw(
            "nccl.rank.entered", place, 40, "count", f"{file}:{line}", "in all_reduce@1GiB, at run (bench.py:120)"
        )
        parsed.saw("nccl.quiet", "n0--n1", 60.2, "s", f"{file}:{line}")
    run = a_run("nccl_pairwise")
    derived = derive(Seen(as_read(parsed).observations), run)
    (link,) = [observation for observation in derived.observations if observation.quantity == "nccl.pair.link"]
    assert (link.subject, link.value) == ("n0--n1", None)
    assert "first n1/rank3 silent: it said nothing, while 3 ranks waited" in str(link.why)
    assert any(note.startswith(f"{file}: n0--n1: first n1/rank3 silent") for note in derived.problems)
