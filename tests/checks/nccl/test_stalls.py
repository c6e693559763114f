"""A pause in the middle of a collective: how long, in which one, and which rank stood still."""

import sys
from pathlib import Path

from bringup import judge
from bringup.evidence.parsed import Parsed
from bringup.plan import profile
from bringup.records import Outcome, Verdict
from factory import a_run
from probing import told_by

sys.path.append(str(Path(__file__).resolve().parents[3] / "infrastructure-validation/probes"))
import bench
import collectives

MEMBERS = [("n0", 0, 11, "a"), ("n0", 1, 12, "b"), ("n1", 2, 13, "a"), ("n1", 3, 14, "b")]
BEATING = (0.0, None, None)
STOPPED = (20.01, "all_to_all@8KiB", 0.02)
EVEN, LONG = (
    (0.0, "repetition 1 of broadcast@8KiB took 0.004 s, the median is 0.003 s"),
    bench.stall([0.004, 0.004, 20.02, 0.005, 0.004, 0.004, 0.004], "all_to_all@8KiB"),
)


def facts_with(standstills: list[tuple[float, str | None, float | None]], stalls: list[tuple[float, str]]) -> Parsed:
    return told_by(lambda probe: collectives.say_stalls(probe, "2-nodes", MEMBERS, stalls, standstills))


def judged(parsed: Parsed) -> dict[tuple[str, str], Verdict]:
    verdicts = judge.judge(a_run("nccl_monitoring"), profile.load("local-cpu"), parsed).verdicts
    return {
        (verdict.gate, verdict.subject): verdict
        for verdict in verdicts
        if verdict.gate.endswith(".stall") and verdict.outcome is not Outcome.PASS
    }


def test_the_longest_repetition_is_told_beyond_the_median_of_its_size() -> None:
    seconds, words = LONG
    assert round(seconds, 3) == 20.016
    assert words == "repetition 3 of all_to_all@8KiB took 20.02 s, the median is 0.004 s"


def test_a_repetition_of_less_than_twice_the_median_is_uneven_and_no_stall() -> None:
    assert bench.stall([10.0, 18.0, 10.0], "all_reduce@8GiB")[0] == 0.0


def test_the_rank_that_was_stopped_fails_and_those_that_waited_pass() -> None:
    by_subject = judged(facts_with([BEATING, BEATING, STOPPED, BEATING], [EVEN, LONG]))
    assert set(by_subject) == {("nccl.stall", "2-nodes"), ("nccl.rank.stall", "n1/rank2")}
    assert {verdict.outcome for verdict in by_subject.values()} == {Outcome.FAIL}
    text_of = {gate: f"{verdict.observed} {verdict.cause}" for (gate, _), verdict in by_subject.items()}
    assert "all_to_all@8KiB took 20.02 s" in text_of["nccl.stall"]
    assert "n1/rank2 stood still" in text_of["nccl.stall"]
    assert "used 0.02 s of CPU: it was stopped, or got no core" in text_of["nccl.rank.stall"]


def test_where_no_rank_stood_still_itself_nobody_is_named() -> None:
    by_subject = judged(facts_with([BEATING] * 4, [LONG, EVEN]))
    assert set(by_subject) == {("nccl.stall", "2-nodes")}
    assert "no rank stood still itself" in f"{by_subject['nccl.stall', '2-nodes'].observed}"


def test_without_a_pause_all_pass() -> None:
    assert judged(facts_with([BEATING] * 4, [EVEN, EVEN])) == {}
