"""How small a fault is found: exact bounds, the search, what is repeated, and what is then claimed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import fault_limits as limits
import pytest
from bringup.drill import suite
from bringup.drill.environment import Here
from bringup.errors import CannotStart
from bringup.formulae.chance import most_events, share_within
from bringup.plan.catalogue import DECLARED, DRILLS, load_profile
from bringup.plan.drill import Drill
from bringup.records import DrillResult, write_record


def a_limits_report(*faults: limits.FaultLimit, **change: object) -> limits.LimitsReport:
    return limits.LimitsReport(
        **{
            "name": "l",
            "place": "local-cluster",
            "profile": None,
            "cluster": None,
            "cores": 2,
            "git_commit": None,
            "opened_at": "2026-11-25T00:00:00Z",
            "repeat": 4,
            "faults": list(faults),
        }
        | change
    )


SIZES = [float(size) for size in (64, 32, 16, 8, 4, 2, 1)]


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [(0, 10, 0.0, 0.3085), (3, 10, 0.0667, 0.6525), (10, 10, 0.6915, 1.0), (1, 1, 0.025, 1.0)],
)
def test_bounds_of_a_share(hits: int, trials: int, low: float, high: float):
    """Clopper and Pearson, from tables of the beta distribution."""
    assert share_within(hits, trials) == pytest.approx((low, high), abs=1e-4)


def test_bounds_of_a_rate():
    """Garwood: 95 % one-sided; of no event the rule of three."""
    assert [most_events(events) for events in (0, 1, 5)] == pytest.approx([2.9957, 4.7439, 10.5130], abs=1e-4)


def trial(size: float | None, is_found: bool | None, *alarms: str) -> limits.LimitTrial:
    return limits.LimitTrial(size=size, found=is_found, alarms=list(alarms), seconds=1, load=2)


def searched(is_found: Callable[[float | None], bool | None], repeat: int = 4) -> limits.FaultLimit:
    fault = limits._fault(DECLARED["slow-pair"], ()).model_copy(update={"sizes": SIZES})
    for _ in limits._trials(fault, repeat, lambda size: trial(size, is_found(size))):
        pass
    return fault


def test_the_sizes_on_both_sides_are_repeated_in_turns_with_the_healthy_cluster():
    fault = searched(lambda size: size is not None and size >= 8)
    assert [known.size for known in fault.trials] == [8.0, 4.0, None] * 4
    assert limits.smallest(fault) == 8
    assert limits.counted(limits.of(fault, 4)) == "0 of 4 (0 to 60 %)"
    assert "found each time at 8 Mbit/s: 4 of 4 (40 to 100 %); at 4 Mbit/s: 0 of 4" in limits.sentence(fault)


def test_larger_sizes_follow_until_one_is_found_each_time():
    count = iter(range(1000))
    fault = searched(lambda size: size is not None and (size > 8 or (size == 8 and next(count) % 2 == 0)))
    assert limits.smallest(fault) == 16
    assert {known.size for known in fault.trials} == {16.0, 8.0, 4.0, None}


def test_smaller_sizes_follow_until_one_is_missed():
    """The search met a miss by chance."""
    first = iter([True, False, True])
    fault = searched(lambda size: size is not None and (size >= 4 if (known := next(first, None)) is None else known))
    assert limits.smallest(fault) == 4
    assert not limits.always(fault, 2)


@pytest.mark.parametrize("answer", [False, None])
def test_what_is_never_found_or_never_performed_is_no_limit(answer: bool | None):
    fault = searched(lambda size: answer)
    assert limits.smallest(fault) is None
    assert limits.never_tried(fault) is (answer is None)
    assert "found each time at" not in limits.sentence(fault)


def test_a_false_alarm_is_counted_and_shown():
    fault = searched(lambda size: size is None or size >= 8)
    assert "false alarms: 4 of 4" in limits.sentence(fault)
    assert limits.of_a_trial(fault, trial(None, True)).startswith("FALSE ALARM")


def test_any_accusation_without_the_fault_is_a_false_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also by a gate that is not the drill's: nccl.pair.link.steady warned of n1--n3 while slow-pair was not made."""
    drill = DECLARED["slow-pair"]

    def performed(sized: Drill, *_: object, **__: object) -> DrillResult:
        answer = limits.perform.not_performed(sized, "x")
        return answer.model_copy(update={"performed": True, "why": None, "detected": False, "false_alarms": ["warn"]})

    monkeypatch.setattr(limits.perform, "perform", performed)
    once = limits._Trials(drill, lambda: Here(("a", "b", "c", "d")), (), tmp_path)
    assert [once(size).found for size in (None, 200.0)] == [True, False]


def test_the_sentence_says_how_many_runs_were_performed():
    fault = searched(lambda size: size is not None and size >= 8)
    fault.trials.append(trial(None, None, "no answer from slurmctld"))
    assert limits.sentence(fault).endswith("false alarms: 0 of 4 (0 to 60 %); 12 of 13 runs performed")


def test_the_page_says_what_else_was_accused_and_at_which_load():
    fault = searched(lambda size: size is not None and size >= 8)
    fault.trials.append(trial(8, True, "discovery.memory [n3] fail"))
    done = a_limits_report(fault)
    page = limits.markdown(done)
    assert "discovery.memory [n3] fail" in page
    assert "load 2.0 to 2.0 on 2 cores" in page


def test_a_drill_with_sizes_is_made_in_the_size_that_is_asked_for():
    declared = DECLARED["slow-pair"]
    assert declared.sizes is not None
    own = next(drill for drill in DRILLS if drill.id == "slow-pair")
    sized = declared.sized(declared.sizes.of[2])
    for drill, rate in ((own, "rate 50mbit"), (sized, "rate 400mbit")):
        assert rate in " ".join(word for command in drill.inject for word in command)
    healthy = DECLARED["slow-matmul"].without_fault()
    assert (healthy.inject, dict(healthy.environment)) == ((), {"BRINGUP_SMOKE_PARTS": "compute"})


def test_a_fault_of_the_cluster_itself_is_never_made_on_one_that_is_not_ours():
    """lossy-cable has commands of the login host, which would be run there."""
    drills = [DECLARED["lossy-cable"], DECLARED["slow-storage"]]
    nodes = dict.fromkeys(("a", "b"), SimpleNamespace(gpus=2))
    request = suite.Request(drills, anywhere=True, profile=load_profile("local-cpu"))
    assert limits.meaningful_here(drills, request, nodes) == drills[1:]  # type: ignore[arg-type]
    with pytest.raises(CannotStart, match="lossy-cable: it changes the cluster itself"):
        limits.meaningful_here(drills[:1], request, nodes)  # type: ignore[arg-type]


def test_no_size_is_left_open_and_each_is_smaller_than_the_one_before():
    for drill in DRILLS:
        assert "{size}" not in drill.model_dump_json()
    for declared in DECLARED.values():
        assert ("{size}" in declared.model_dump_json()) is (declared.sizes is not None)
        if declared.sizes is not None:
            assert list(declared.sizes.of) in (sorted(declared.sizes.of), sorted(declared.sizes.of, reverse=True))
            assert len(set(declared.sizes.of)) == len(declared.sizes.of)


def test_what_was_tried_to_the_end_is_not_tried_again(tmp_path: Path):
    faults = [searched(lambda size: size == 64).model_copy(update={"drill": name}) for name in ("slow-pair", "latency")]
    done = a_limits_report(*faults)
    for ended, kept in ((False, ["slow-pair"]), (True, ["slow-pair", "latency"])):
        write_record(tmp_path / limits.LIMITS, done.model_copy(update={"ended": ended}), replace=True)
        again = limits._begin(suite.Request([], resume=tmp_path), repeat=99)[1]
        assert ([fault.drill for fault in again.faults], again.repeat, again.ended) == (kept, 4, False)
    with pytest.raises(CannotStart, match="was local-cluster"):
        limits._begin(suite.Request([], resume=tmp_path, anywhere=True), repeat=4)
