"""compare --baseline: what changed is found, what did not is left alone, and too little evidence is said to be too
little."""

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest
from bringup.cli import main
from bringup.compare import noise, regression
from bringup.kernel.errors import NotComparable
from bringup.training.comparison.entries import Entry
from bringup.training.comparison.sidebyside import LOSS_TOLERANCE_NATS
from factory import an_entry
from tiers import FEWER
from trained_runs import RECORDS, run_of

MEMORY = json.loads((RECORDS / "run_ddp_2node/metrics.json").read_text())["memory"]


def make_run(
    folder: Path,
    *,
    speed: float = 1.0,
    wander: random.Random | None = None,
    noise_level: float = 0.0,
    args: dict | None = None,
    metrics: dict | None = None,
    like: str = "run_ddp_2node",
) -> Entry:
    """A run like the fixture, `speed` times as fast; every number of it disturbed by normal noise of the given
    relative size."""

    def disturbed(value: float) -> float:
        return value * (1 + noise_level * wander.gauss(0, 1)) if wander else value

    folder.mkdir(parents=True)
    run_metrics = json.loads((RECORDS / like / "metrics.json").read_text())
    factor = disturbed(speed)
    run_metrics["tokens_per_s"] *= factor
    run_metrics["tokens_per_s_per_rank"] *= factor
    for name in ("p50", "p95", "max"):
        run_metrics["step_time_s"][name] /= factor
    # the fixture's own steps were taken on busy cores; how far steps wander inside a run is not what is asked here
    run_metrics["steps_s"] = [run_metrics["step_time_s"]["p50"]] * len(run_metrics["steps_s"])
    run_metrics["step_time_s"]["p95"] = disturbed(run_metrics["step_time_s"]["p95"])
    run_metrics["memory"]["host_rss_gib"] = disturbed(run_metrics["memory"]["host_rss_gib"])
    for name in ("import_s", "process_group_s", "first_collective_s", "load_s", "first_step_s"):
        run_metrics["startup"][name] = disturbed(run_metrics["startup"][name])
    run_metrics |= metrics or {}
    resolved = json.loads((RECORDS / like / "run_args.json").read_text()) | (args or {})
    (folder / "metrics.json").write_text(json.dumps(run_metrics))
    (folder / "run_args.json").write_text(json.dumps(resolved))
    return an_entry(folder)


def sides(tmp_path, before, after, *, speed, level, seed) -> tuple[list[Entry], list[Entry]]:
    wander = random.Random(seed)
    several = (("old", before, 1.0), ("new", after, speed))
    old, new = (
        [make_run(tmp_path / f"{seed}-{side}{at}", speed=fast, wander=wander, noise_level=level) for at in range(count)]
        for side, count, fast in several
    )
    return old, new


def finding_of(compared: list[regression.Comparison], measure: str) -> regression.Finding:
    findings = (finding for comparison in compared for finding in comparison.findings)
    return next(finding for finding in findings if finding.measure.startswith(measure))


def concluded(new: list[Entry], old: list[Entry], measure: str = "tokens") -> str:
    return finding_of(regression.check(new, old), measure).conclusion


def test_an_interval_holds_the_truth_as_often_as_it_says():
    wander = random.Random(1)
    for before, after in ((5, 5), (3, 10), (6, 1), (4, 1)):
        held = 0
        for _ in range(2000):
            old = [noise.Timed("2026-11-26", wander.gauss(100, 2)) for _ in range(before)]
            new = [noise.Timed("2026-11-26", wander.gauss(90, 1.8)) for _ in range(after)]
            interval = noise.interval(noise.fit(old, new), 0.95)
            held += interval.low <= -0.1 <= interval.high
        assert 0.93 < held / 2000 < 0.985, (before, after)


def test_steps_that_depend_on_each_other_give_a_larger_error_than_their_plain_one():
    wander = random.Random(2)
    level, plain, waves = 0.0, [], []
    for _ in range(2000):
        level = 0.9 * level + wander.gauss(0, 1)
        waves.append(100 + level)
        plain.append(100 + wander.gauss(0, 2.3))
    # the true error of a mean of 2000 such steps: 1 / (1 - 0.9) / sqrt(2000) = 0.22; without regard to neighbours 0.05
    assert noise.error_inside(waves) * 100 == pytest.approx(0.22, rel=0.35)
    assert noise.error_inside(plain) * 100 == pytest.approx(0.051, rel=0.6)
    assert noise.error_inside([1.0] * 7) is None


CHECKS = 60 if FEWER else 300


def test_the_unchanged_is_called_a_regression_in_no_more_checks_than_is_said(tmp_path):
    outcomes = [
        regression.overall(regression.check(*reversed(sides(tmp_path, 5, 5, speed=1.0, level=0.01, seed=seed))))
        for seed in range(CHECKS)
    ]
    assert outcomes.count("fail") <= 6  # of 300 at most 1 % is promised: 3, and what chance adds to it
    assert outcomes.count("pass") > 0.8 * CHECKS  # and it is not won by never deciding


def test_five_percent_slower_is_found_with_five_repetitions_at_one_percent_of_noise(tmp_path):
    several = (sides(tmp_path, 5, 5, speed=0.95, level=0.01, seed=seed) for seed in range(100))
    findings = [concluded(new, old) for old, new in several]
    assert findings.count("REGRESSION") >= 90
    assert "improvement" not in findings
    assert findings.count("within noise") <= 2


def test_faster_is_an_improvement_and_no_alarm(tmp_path):
    old, new = sides(tmp_path, 5, 5, speed=1.1, level=0.005, seed=4)
    compared = regression.check(new, old)
    assert finding_of(compared, "tokens").conclusion == finding_of(compared, "step p50").conclusion == "improvement"
    assert regression.overall(compared) == "pass"


def test_noise_that_hides_the_question_is_cannot_tell_with_the_repetitions_that_it_takes(tmp_path):
    old, new = sides(tmp_path, 3, 3, speed=0.97, level=0.03, seed=5)
    finding = finding_of(regression.check(new, old), "tokens")
    assert finding.conclusion == "cannot tell"
    assert "runs on each side" in finding.why


def test_wild_runs_say_that_nothing_is_known(tmp_path):
    old, new = (
        [make_run(tmp_path / f"{side}{speed}", speed=speed) for speed in speeds]
        for side, speeds in (("old", (1.0, 3.0, 0.5)), ("new", (0.6, 2.0, 0.3)))
    )
    finding = finding_of(regression.check(new, old), "tokens")
    assert finding.conclusion == "cannot tell"
    assert "> +1000 %]" in finding.change


def test_a_difference_too_small_to_matter_is_none_however_certain(tmp_path):
    old, new = sides(tmp_path, 5, 5, speed=0.995, level=0.0001, seed=6)
    assert concluded(new, old) == "within noise"


def test_one_run_each_tells_only_whether_the_losses_agree(tmp_path, capsys):
    old, new = run_of("run_ddp_2node", tmp_path / "old"), run_of("run_ddp_2node", tmp_path / "new")
    assert main(["compare", str(new), "--baseline", str(old)]) == 2
    shown = capsys.readouterr().out
    assert "run the baseline again beside the new runs, in turn, or on 5 days" in shown
    assert "REGRESSION" not in shown
    compared = regression.check([make_run(tmp_path / "slow", speed=0.7)], [make_run(tmp_path / "quick")])
    assert finding_of(compared, "loss").conclusion == "agrees"
    assert finding_of(compared, "start-up: process group").conclusion == "within noise"  # both far below a second


def test_one_new_run_is_held_against_the_spread_of_a_repeated_baseline(tmp_path):
    old, _ = sides(tmp_path, 8, 0, speed=1, level=0.005, seed=7)
    assert concluded([make_run(tmp_path / "slow", speed=0.9)], old) == "REGRESSION"
    assert concluded([make_run(tmp_path / "same")], old) == "within noise"


@pytest.mark.parametrize(("share", "conclusion"), [(0.9, "agrees"), (1.1, "DISAGREES"), (100.0, "DISAGREES")])
def test_losses_agree_up_to_the_tolerance_of_their_dtype_and_another_fails(tmp_path, share, conclusion):
    """A single run is enough, and one of several."""
    old, same = make_run(tmp_path / "old"), make_run(tmp_path / "same")
    gap = share * LOSS_TOLERANCE_NATS["float32"]
    new = make_run(tmp_path / "new", metrics={"loss": [*old.metrics.loss[:-1], old.metrics.loss[-1] + gap]})
    for later in ([new], [same, new]):
        compared = regression.check(later, [old])
        assert finding_of(compared, "loss").conclusion == conclusion
        assert (regression.overall(compared) == "fail") is (conclusion == "DISAGREES")


def test_more_memory_is_a_regression_even_when_it_never_varies(tmp_path):
    more = {"memory": MEMORY | {"host_rss_gib": 1.2 * MEMORY["host_rss_gib"]}}
    old = [make_run(tmp_path / f"old{index}") for index in range(3)]
    new = [make_run(tmp_path / f"new{index}", metrics=more) for index in range(3)]
    assert concluded(new, old, "host memory") == "REGRESSION"


def test_unlike_runs_are_refused_with_the_field(tmp_path):
    old, new = make_run(tmp_path / "old"), make_run(tmp_path / "new", args={"learning_rate": 0.5})
    with pytest.raises(NotComparable, match="learning_rate"):
        regression.check([new], [old])
    other = make_run(tmp_path / "other", like="run_fsdp_2node")
    with pytest.raises(NotComparable, match=r"strategy ddp vs fsdp"):
        regression.check([other], [old])


def test_another_environment_is_named_between_the_sides_and_refused_inside_one(tmp_path):
    old = make_run(tmp_path / "old")
    new = make_run(tmp_path / "new", args={"torch": "2.99.0"}, metrics={"gpu0": "NVIDIA H200"})
    [compared] = regression.check([new], [old])
    assert "torch 2.13.0+cpu → 2.99.0" in compared.environment
    assert "GPU none → NVIDIA H200" in compared.environment
    with pytest.raises(NotComparable, match="torch"):
        regression.check([make_run(tmp_path / "third")], [old, new])


def test_a_value_that_some_runs_lack_is_cannot_tell(tmp_path):
    seen = {"memory": MEMORY | {"device_allocated_gib": 10.0, "device_reserved_gib": 11.0}}
    old = [make_run(tmp_path / f"old{index}", metrics=seen) for index in range(3)]
    new = [make_run(tmp_path / "new0", metrics=seen), make_run(tmp_path / "new1")]
    assert concluded(new, old, "device memory allocated") == "cannot tell"


def test_several_kinds_of_runs_find_their_own_baseline(tmp_path):
    kinds = ("run_ddp_2node", "run_fsdp_2node")
    old = [make_run(tmp_path / f"old-{kind}", like=kind) for kind in kinds]
    compared = regression.check([make_run(tmp_path / f"new-{kind}", like=kind) for kind in kinds], old)
    programs = [comparison.title.split(",")[0] for comparison in compared]
    assert programs == ["train_ddp_multi_node", "train_fsdp_multi_node"]


def test_a_run_that_was_resumed_is_no_repetition_of_one_that_was_not(tmp_path):
    resumed = {"resumed": {"run": "first", "step": 12, "world_size": 4, "passed_over": []}}
    whole, rest = make_run(tmp_path / "whole"), make_run(tmp_path / "rest", metrics=resumed)
    for now, baseline in ((whole, rest), (rest, whole)):
        with pytest.raises(NotComparable, match="rest was resumed at step 12"):
            regression.check([now], [baseline])


def test_a_lower_mfu_is_a_regression_and_is_left_out_where_no_peak_is_known(tmp_path):
    wander = random.Random(7)

    def with_mfu(name: str, mfu: float) -> Entry:
        return make_run(tmp_path / name, metrics={"mfu": mfu * (1 + 0.001 * wander.gauss(0, 1)), "mfu_reason": None})

    old = [with_mfu(f"old{index}", 0.40) for index in range(5)]
    assert concluded([with_mfu(f"new{index}", 0.36) for index in range(5)], old, "MFU") == "REGRESSION"
    cpu = [make_run(tmp_path / f"cpu{index}") for index in range(4)]
    [compared] = regression.check(cpu[:2], cpu[2:])
    assert not [finding for finding in compared.findings if "MFU" in finding.measure]


def test_runs_that_happen_to_agree_are_no_steadier_than_their_own_steps(tmp_path):
    """Runs of a side that differ by 0.01 % made 3 % a regression, though the steps of each scatter by 10 %."""
    wander = random.Random(11)

    def run(name: str, speed: float) -> Entry:
        entry = make_run(tmp_path / name, speed=speed)
        steps = [entry.metrics.step_time_s.p50 * (1 + 0.1 * wander.gauss(0, 1)) for _ in entry.metrics.steps_s * 4]
        return replace(entry, metrics=entry.metrics.model_copy(update={"steps_s": steps}))

    old = [run("old0", 1.0), run("old1", 1.0001), run("old2", 1.0002)]
    assert concluded([run("new0", 0.97), run("new1", 0.9701), run("new2", 0.9702)], old) == "cannot tell"
