"""Runs over time: a newest run that is slower than its own history is named, and noise is not."""

import json

import pytest
from bringup.compare import history
from bringup.kernel.judge import EVIDENCE, Judged, judge_folder
from bringup.kernel.plan.stand_ins import GPU
from bringup.kernel.records import Observation, Outcome
from factory import a_run, a_verdict, judged_of
from loops import case_for_each, for_each
from runs_for_tests import reseal
from trained_runs import change, change_speed, run_of

BUSBW, LATENCY, TFLOPS = "nccl.all_reduce.busbw", "nccl.all_reduce.latency", "smoke.compute.tflops"
HOLDS = [a_verdict(gate, "job", Outcome.PASS) for gate in ("run.closed", "run.evidence")]


def run(number: int, value: float, gate: str = BUSBW, subject: str = "2-nodes", *, nodes: int = 2) -> Judged:
    opened = a_run("nccl_scaling", [f"n{index}" for index in range(nodes)], name=f"r{number}", plan={})
    verdict = a_verdict(gate, subject, Outcome.PASS, value=value)
    return judged_of(*HOLDS, verdict, run=opened.model_copy(update={"opened_at": f"2026-01-{number + 1:02}T06:00:00Z"}))


def sentence_of(values: list[float], gate: str = BUSBW) -> str:
    [finding] = history.judge(history.series(run(number, value, gate) for number, value in enumerate(values)))
    return finding.said


BEFORE = [390.0, 392.0, 391.0, 389.0, 390.0, 391.0, 390.0, 388.0, 392.0, 390.0]


OFTEN_LOW = [390.0, 391.0, 300.0, 392.0, 390.0, 300.0, 391.0, 389.0, 300.0, 390.0, 391.0]


@for_each(
    ([*BEFORE, 300, 302, 301], "regression"),
    ([*BEFORE, 450, 452, 451], "improvement"),
    ([*BEFORE, 391, 390, 389], "within noise"),
    # what stays low stays a regression: low days do not become what is usual before they are many
    *(([*BEFORE, *[300.0] * days], "regression") for days in range(3, 10)),
    # a day that was low once, and is not any more, is forgotten
    ([*BEFORE, 300, 300, 390], "cannot tell"),
    ([*BEFORE, 300, 390, 391, 389], "within noise"),
    # where low days were frequent, three in a row are not enough
    ([*OFTEN_LOW, *[300.0] * 3], history.LOW),
    ([*OFTEN_LOW, *[300.0] * 4], "regression"),
    ([*[390.0, 390.01] * 5, 389.0, 389.0, 389.0], "within noise"),  # certain, and below the threshold
    ([390, 391, 300], "too few days"),
    ([390, 250, 410, 300, 280] * 3, "cannot tell"),
)
def test_three_low_days_after_ten_are_a_regression_and_three_high_ones_an_improvement(values, says):
    assert sentence_of(values) == says


def test_of_a_latency_low_is_better():
    assert sentence_of([400 - value / 10 for value in [*BEFORE, 550, 552, 551]], LATENCY) == "improvement"
    assert sentence_of([*(value / 10 for value in BEFORE), 50, 52, 51], LATENCY) == "regression"


@pytest.mark.parametrize("newest", [[390, 391, 300], [390, 300, 300], [300, 391, 300]])
def test_a_low_day_or_two_is_to_be_run_again_and_no_pass(newest):
    findings = history.judge(history.series(run(number, value) for number, value in enumerate([*BEFORE, *newest])))
    assert [finding.said for finding in findings] == [history.LOW]
    assert history.exit_code(findings) == history.exit_code(history.judge(history.series([run(0, 390)]))) == 2


def test_a_day_of_several_runs_is_one_value():
    runs = [run(number, value) for number, value in enumerate([*BEFORE, 390, 391])]
    runs += [run(12, value) for value in (300.0, 391.0, 390.0, 100.0, 392.0)]
    [finding] = history.judge(history.series(runs))
    assert (finding.said, len(finding.series.of_days)) == ("within noise", 13)


def test_the_worst_node_stands_for_its_run_and_other_numbers_of_nodes_are_another_series():
    assert len(history.series([run(0, 640, TFLOPS, "n0"), run(1, 641, TFLOPS, "n0", nodes=4)])) == 2
    of_two = (a_verdict(TFLOPS, node, Outcome.PASS, value=tflops) for node, tflops in (("n0", 640.0), ("n1", 600.0)))
    [series] = history.series([judged_of(*HOLDS, *of_two, run=a_run("smoke", plan={}))])
    assert series.points[0].value == 600.0


def test_a_run_whose_evidence_does_not_hold_is_not_in_the_history():
    passed = a_verdict(BUSBW, "2-nodes", Outcome.PASS, value=1.0)
    assert history.series([judged_of(a_verdict("run.evidence", "job", Outcome.INCOMPLETE), passed)]) == []


def test_runs_are_ordered_by_when_they_were_opened():
    runs = [run(number, value) for number, value in enumerate([390, 392, 391, 300])]
    [finding] = history.judge(history.series(reversed(runs)))
    assert [point.value for point in finding.series.points] == [390, 392, 391, 300]


def test_the_screen_names_a_regression_first_and_json_has_every_point():
    runs = [run(number, value) for number, value in enumerate([*BEFORE, 300, 301, 302])]
    runs += [run(number, 640 + number, TFLOPS, "n0") for number in range(5)]
    findings = history.judge(history.series(runs))
    shown = history.screen(findings, len(runs)).splitlines()
    assert BUSBW in shown[1] or BUSBW in shown[2]
    assert shown[-1].startswith("18 runs: 1 regression")
    assert history.exit_code(findings) == 1
    assert [len(entry["points"]) for entry in json.loads(history.as_json(findings))] == [13, 5]


@pytest.mark.parametrize("earlier", [[390], [390, 390]])
def test_fewer_days_than_tell_a_change_from_noise_say_how_much_changed_and_that_more_are_needed(earlier):
    """28 lines "cannot tell", before."""
    runs = [run(number, value) for number, value in enumerate([*earlier, 300])]
    runs += [run(10 + number, value, LATENCY) for number, value in enumerate([20.0, 21.0])]
    shown = history.screen(history.judge(history.series(runs)), len(runs))
    assert "cannot tell" not in shown
    assert f"{len(earlier) + 1} of 13 days" in shown
    assert shown.splitlines()[-1] == (
        f"{len(runs)} runs: 2 measures with fewer than the 13 days that tell a change from noise; "
        "the worst change is -23.1 %: nccl.all_reduce.busbw, nccl_scaling, 2-nodes"
    )
    assert "-23.1 %" in shown.splitlines()[2] or "-23.1 %" in shown.splitlines()[3]


def test_a_training_has_a_history_of_its_speed_with_runs_of_the_same_arguments(tmp_path):
    runs = []
    for number, (rate, seed) in enumerate([(100.0, 42), (101.0, 42), (50.0, 43)]):
        folder = run_of("run_1gpu", tmp_path / str(number))
        change_speed(folder, rate)
        change(folder, "run_args.json", seed=seed)
        reseal(folder)
        runs.append(judge_folder(folder))
    speeds = [series for series in history.series(runs) if series.measure == "tokens per second"]
    assert [[point.value for point in series.points] for series in speeds] == [[100.0, 101.0], [50.0]]
    assert (speeds[0].unit, speeds[0].better, speeds[0].where) == ("tokens/s", 1, "run_1gpu, tiny, 1 node x 2 GPUs")


@pytest.mark.parametrize("value", [True, 0, "word"])
def test_what_is_no_speed_has_no_history(value):
    assert history.series([run(0, value)]) == []


# ---- silent corruption: how long was compared bit by bit, on what, and what no finding allows


def compared(devices: dict[str, tuple[float | None, int]], sound: Outcome = Outcome.PASS) -> Judged:
    """device -> (seconds that were compared, wrong values)."""
    facts = [
        Observation(quantity=quantity, value=value, unit=unit, subject=device, evidence="raw/sweep.jsonl:1")
        for device, (compared_s, wrong) in devices.items()
        for quantity, value, unit in ((history.COMPARED_S, compared_s, "s"), (history.WRONG, wrong, "count"))
        if value is not None
    ]
    return judged_of(*(a_verdict(gate, "job", sound, "yes") for gate in EVIDENCE), observations=tuple(facts))


def test_no_finding_in_3_hours_allows_one_an_hour():
    """The rule of three."""
    assert history.compared([compared({"n0/GPU-1": (5400, 0), "n0/GPU-2": (5400, 0)})]) == (
        "silent corruption, compared bit by bit: GPUs: 3 device-hours, 0 findings, so at most one in 1 (95 %)"
    )


def test_a_finding_allows_more():
    text = history.compared([compared({"n0/GPU-1": (36000, 7)})])
    assert "10 device-hours, 1 findings, so at most one in 2.11" in text


@case_for_each(("n0/task0", "CPUs"), (f"n0/{GPU}0001", "simulated GPUs"), ("n0/gpu0", "GPUs"))
def test_it_says_on_what_it_was_compared(device, kind):
    assert f": {kind}: 1 device-hours" in history.compared([compared({device: (3600, 0)})])


def test_runs_are_added_up_where_their_evidence_holds_and_the_time_is_known():
    runs = [compared({"n0/task0": (3600, 0)})] * 2 + [compared({"n0/task0": (None, 0)})]
    assert "CPUs: 2 device-hours" in history.compared([*runs, compared({"n0/task0": (3600, 9)}, Outcome.FAIL)])
    assert history.compared([compared({})]) == ""
