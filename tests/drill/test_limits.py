"""How small a fault is found: exact bounds, the search, what is repeated, and what is then claimed."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import fault_limits as limits
import pytest
from bringup.drill.catalogue import DECLARED, DRILLS, Drill
from bringup.report.campaigns import DrillResult


def trial(size: float | None, is_found: bool | None, *alarms: str) -> limits.LimitTrial:
    return limits.LimitTrial(size=size, found=is_found, alarms=list(alarms), seconds=1, load=2)


def searched(is_found: Callable[[float | None], bool | None], repeat: int = 4) -> limits.FaultLimit:
    fault = limits.FaultLimit(DECLARED["slow-pair"], [float(size) for size in (64, 32, 16, 8, 4, 2, 1)])
    for _ in limits._trials(fault, repeat, lambda size: trial(size, is_found(size))):
        pass
    return fault


def test_the_sizes_on_both_sides_are_repeated_in_turns_with_the_healthy_cluster():
    fault = searched(lambda size: size is not None and size >= 8)
    assert [known.size for known in fault.trials] == [8.0, 4.0, None] * 4
    assert fault.smallest() == 8
    assert limits.counted(fault.of(4)) == "0 of 4 (0 to 60 %)"
    assert limits.of_gates([fault, fault])["nccl.pair.link"].count("found each time at") == 2
    assert "found each time at 8 Mbit/s: 4 of 4 (40 to 100 %); at 4 Mbit/s: 0 of 4" in limits.sentence(fault)


def test_larger_sizes_follow_until_one_is_found_each_time_and_smaller_ones_until_one_is_missed():
    """The search met a miss by chance."""
    count = iter(range(1000))
    fault = searched(lambda size: size is not None and (size > 8 or (size == 8 and next(count) % 2 == 0)))
    assert fault.smallest() == 16
    assert {known.size for known in fault.trials} == {16.0, 8.0, 4.0, None}
    first = iter([True, False, True])
    fault = searched(lambda size: size is not None and (size >= 4 if (known := next(first, None)) is None else known))
    assert fault.smallest() == 4
    assert not fault.always(2)


@pytest.mark.parametrize("answer", [False, None])
def test_what_is_never_found_or_never_performed_is_no_limit(answer: bool | None):
    fault = searched(lambda size: answer)
    assert fault.smallest() is None
    assert fault.never_tried() is (answer is None)
    assert "found each time at" not in limits.sentence(fault)


def test_what_is_said_of_alarms_of_runs_that_were_not_performed_and_of_what_else_was_accused():
    fault = searched(lambda size: size is None or size >= 8)
    assert "false alarms: 4 of 4" in limits.sentence(fault)
    assert limits.of_a_trial(fault, trial(None, True)).startswith("FALSE ALARM")
    fault = searched(lambda size: size is not None and size >= 8)
    fault.trials += [trial(None, None, "no answer from slurmctld"), trial(8, True, "discovery.memory [n3] fail")]
    assert limits.sentence(fault).endswith("false alarms: 0 of 4 (0 to 60 %); 13 of 14 runs performed")
    page = limits.markdown([fault], 4, "2026-11-25T00:00:00Z")
    assert "discovery.memory [n3] fail" in page
    assert "load 2.0 to 2.0 on " in page


def test_any_accusation_without_the_fault_is_a_false_alarm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Also by a gate that is not the drill's: nccl.pair.link.steady warned of n1--n3 while slow-pair was not made."""
    drill = DECLARED["slow-pair"]

    def performed(sized: Drill, *_: object, **__: object) -> DrillResult:
        answer = limits.perform.not_performed(sized, "x")
        return answer.model_copy(update={"performed": True, "why": None, "detected": False, "false_alarms": ["warn"]})

    monkeypatch.setattr(limits.perform, "perform", performed)
    once = limits._Trials(drill, lambda: SimpleNamespace(heal=lambda: None), tmp_path)  # type: ignore[arg-type,return-value]
    assert [once(size).found for size in (None, 200.0)] == [True, False]


def test_a_drill_with_sizes_is_made_in_the_size_that_is_asked_for():
    declared = DECLARED["slow-pair"]
    own = next(drill for drill in DRILLS if drill.id == "slow-pair")
    for drill, rate in ((own, "rate 50mbit"), (limits.sized(declared, declared.sizes.of[2]), "rate 400mbit")):
        assert rate in " ".join(word for command in drill.inject for word in command)
    healthy = limits.without_fault(DECLARED["slow-matmul"])
    assert (healthy.inject, dict(healthy.environment)) == ((), {"BRINGUP_SMOKE_PARTS": "compute"})


def test_no_size_is_left_open_and_each_is_smaller_than_the_one_before():
    for drill in DRILLS:
        assert "{size}" not in drill.model_dump_json()
    for declared in DECLARED.values():
        assert ("{size}" in declared.model_dump_json()) is (declared.sizes is not None)
        if declared.sizes is not None:
            assert list(declared.sizes.of) in (sorted(declared.sizes.of), sorted(declared.sizes.of, reverse=True))
            assert len(set(declared.sizes.of)) == len(declared.sizes.of)
