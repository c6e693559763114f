"""Figures of the page: what stands where, what is marked, and that a fleet stays readable."""

from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from bringup.kernel.judge import Judged
from bringup.kernel.plan import profile
from bringup.kernel.plan.rounds import in_advance
from bringup.kernel.records import Closed, Observation, Outcome, Verdict
from bringup.kernel.run_folder import Seal
from bringup.report import page
from bringup.report.charts import bandwidth, drawing, pairs, training
from bringup.report.charts.drawing import Axis, Box, Drawing, Line, Squares, Text
from bringup.report.links import nowhere
from bringup.report.page import Section, timeline
from bringup.training.comparison.entries import Entry
from factory import a_run, a_verdict, gathered, judged_of, observed, records_in
from loops import for_each
from trained_runs import RECORDS

SLOW = "n77"


def sent(source: str, target: str, speed: float) -> Observation:
    return observed("pair.bandwidth", f"{source}->{target}", speed)


def a_fleet(count: int, rounds: int = 6) -> tuple[list[str], list[Observation]]:
    """All healthy but SLOW, which sends at a tenth."""
    nodes = [f"n{number}" for number in range(count)]
    met = [pair for pairs_of_round in in_advance(nodes, rounds) for pair in pairs_of_round]
    ways = [way for pair in met for way in (pair, tuple(reversed(pair)))]
    return nodes, [sent(source, target, 4.0 if source == SLOW else 46.0) for source, target in ways]


S = TypeVar("S")


def of_kind(drawn: Drawing, kind: type[S]) -> list[S]:
    return [shape for shape in drawn.shapes if isinstance(shape, kind)]


def words(drawn: Drawing) -> list[str]:
    return [text.words for text in of_kind(drawn, Text)]


@for_each(True, False)
def test_ticks_are_round_numbers_inside_of_the_axis(is_log: bool):
    axis = Axis(0.003, 420.0, 0.0, 100.0, is_log)
    ticks = axis.ticks()
    assert 3 <= len(ticks) <= 8
    assert all(axis.low <= tick <= axis.high and 0 <= axis.at(tick) <= 100 for tick in ticks)
    assert ticks == [0.01, 0.1, 1.0, 10.0, 100.0] if is_log else [0, 100, 200, 300, 400]


def test_one_number_alone_has_an_axis_too():
    flat = drawing.lines("t", [drawing.Series("a", [(1.0, 5.0), (2.0, 5.0)])], "step", "ms")
    assert {round(y) for line in named(flat) for _, y in line.points} == {117}


def curve_of(*speeds: float, scale: str = "2-nodes") -> list[Observation]:
    of_size = zip(("8KiB", "16MiB", "8GiB"), speeds, strict=False)
    return [observed(f"nccl.all_reduce.busbw@{size}", scale, speed) for size, speed in of_size]


def test_a_floor_stands_at_its_size_and_a_ceiling_across_the_whole_figure():
    [drawn] = bandwidth.draw(curve_of(0.1, 30.0, 380.0), profile.load("h100-8x400g"))
    titled = [line for line in of_kind(drawn, Line) if line.title]
    floor, ceiling = (next(line for line in titled if line.style == style) for style in ("floor", "ceiling"))
    [measured] = named(drawn)
    assert floor.points[0][0] < measured.points[-1][0] <= floor.points[1][0] + 1
    assert (ceiling.points[0][0], ceiling.points[1][0]) == (54.0, 360.0)
    assert "8GiB" in floor.title and "the ceiling" in ceiling.title
    assert {floor.title, ceiling.title, "2-nodes", "8KiB"} <= set(words(drawn))


def test_a_collective_of_which_nothing_is_expected_says_so():
    [drawn] = bandwidth.draw(curve_of(0.1, 1.0), profile.load("generic"))
    assert drawn.note == "No limit is set for it."
    assert bandwidth.draw(curve_of(0.1), profile.load("generic")) == []  # one size is no curve


def test_few_nodes_have_names_and_numbers_and_what_failed_is_outlined():
    seen = [sent("n0", "n1", 40.0), sent("n1", "n0", 4.0), sent("n0", "n2", 46.0)]
    failed = a_verdict("nccl.pair.link", "n0--n1")
    [drawn] = pairs.draw(seen, ["n0", "n1", "n2"], [failed, a_verdict("nccl.pair.node", "n2", Outcome.PASS)])
    outlined = [box.title for box in of_kind(drawn, Box) if box.style == "outlined"]
    assert outlined == ["n0 → n1: 40 GB/s", "n1 → n0: 4 GB/s"]
    assert {"n0", "n1", "n2", "40", "4", "46"} <= set(words(drawn))
    assert drawn.note.startswith("3 of 6 directions measured; slowest: n1 → n0 4,")
    assert pairs.draw([], ["n0", "n1"], []) == []


def test_a_pair_far_below_the_floor_is_dark_and_outlined_though_it_is_the_fastest_there_is():
    """Both squares had the colour of the best, and a fifth of the floor was "a healthy one"."""
    [busbw] = curve_of(0.006, scale="n0--n1")
    failed = a_verdict("nccl.pair.slowest", "job").model_copy(update={"limit": 0.03})
    [drawn] = pairs.draw([busbw], ["n0", "n1"], [failed])
    assert [squares.style for squares in of_kind(drawn, pairs.Squares)] == ["heat-2"]
    assert [box.style for box in of_kind(drawn, Box) if box.title] == ["outlined"] * 2
    assert drawn.note == "1 of 1 pairs measured; 0.03 GB/s are needed; slowest: n0 and n1 0.006."


def test_of_a_thousand_nodes_each_is_a_square_and_a_slow_sender_is_dark_and_outlined():
    """A map of them would be white: few of the million directions are measured."""
    nodes, seen = a_fleet(1024)
    [drawn] = pairs.draw(seen, nodes, [a_verdict("nccl.pair.node", SLOW)])
    sends, receives = [shape for shape in of_kind(drawn, Squares) if shape.style == "heat-9"]
    [dark] = [shape for shape in of_kind(drawn, Squares) if shape.style == "heat-0"]
    assert (len(sends.corners), len(dark.corners), len(receives.corners)) == (1023, 1, 1024)
    outlined = [box for box in of_kind(drawn, Box) if box.style == "outlined"]
    assert [box.title for box in outlined] == ["n77 sends 4 GB/s", "n77 receives 46 GB/s"]
    assert (outlined[0].x, outlined[0].y) == dark.corners[0]
    assert len(drawn.shapes) < 40
    assert "n77 → " in drawn.note


def an_entry(name: str) -> Entry:
    records = records_in(RECORDS / name)
    return Entry(Path(name), a_run(name), Outcome.PASS, records.args, records.metrics)


def named(drawn: Drawing) -> list[Line]:
    return [line for line in of_kind(drawn, Line) if line.style.startswith("line-") and line.title]


def test_a_strategy_stands_beside_the_ideal_and_losses_that_agree_are_one_line_else_they_lie_over_each_other():
    runs = [an_entry("run_ddp_2node"), an_entry("run_1gpu")]
    speeds, exposed, losses, gaps = training.deciding(runs)
    ddp, alone = runs[0].metrics, runs[1].metrics
    share = 100 * ddp.tokens_per_s / (ddp.world_size * alone.tokens_per_s)
    assert speeds.title == "DDP: tokens per second over ranks"
    assert speeds.note == f"of the ideal: {ddp.world_size} ranks {share:.3g} %"
    measured, ideal = named(speeds)
    assert (measured.title, ideal.title) == ("DDP", "ideal")
    assert measured.points[0] == ideal.points[0]
    assert measured.points[1][1] > ideal.points[1][1], "lower on the picture: fewer tokens/s than the ideal"
    [line] = named(losses)
    assert line.title == "all 2 runs, within 1e-05 of each other"
    assert gaps.title == "Loss gap to run_1gpu, nats per token"
    assert of_kind(exposed, Box)[-1].title == f"run_ddp_2node: {100 * (ddp.communication_share or 0):.3g} %"
    other = ddp.model_copy(update={"loss": [loss + 0.1 for loss in ddp.loss]})
    _, _, losses, _ = training.deciding([replace(runs[0], metrics=other), runs[1]])
    thick, thin = named(losses)
    assert (thick.title, thick.style, thin.style) == ("run_1gpu", "line-0 wide", "line-1")
    assert [len(training.of_ranks(run)) for run in runs] == [2, 0], "ranks of one are no figure"


def test_without_a_run_of_one_rank_each_run_is_a_bar_with_a_name_of_its_own():
    first = replace(an_entry("run_ddp_2node"), folder=Path("run_ddp_2node-a"))
    again = replace(first, folder=Path("run_ddp_2node-b"))
    assert {"run_ddp_2node-a", "run_ddp_2node-b"} <= set(words(training.deciding([first, again])[0]))
    fsdp = replace(an_entry("run_fsdp_2node"), folder=Path("run_fsdp_2node-c"))
    assert {"run_ddp_2node", "run_fsdp_2node"} <= set(words(training.deciding([first, fsdp])[0]))


def bandwidth_verdict(gate: str, subject: str, value: float, limit: float | None, outcome: Outcome) -> Verdict:
    made = a_verdict(gate, subject, outcome)
    return made.model_copy(update={"value": value, "unit": "GB/s", "rule": "at_least", "limit": limit})


def test_each_bandwidth_stands_on_a_rail_with_a_tick_at_its_floor_and_what_failed_first():
    drawn = bandwidth.against_floors(
        [
            bandwidth_verdict("nccl.all_reduce.busbw", "1-node", 400.0, 380.0, Outcome.PASS),
            bandwidth_verdict("nccl.all_reduce.busbw", "2-nodes", 80.0, 340.0, Outcome.FAIL),
            bandwidth_verdict("nccl.all_reduce.busbw", "2-nodes", 90.0, 340.0, Outcome.FAIL),
            bandwidth_verdict("nccl.all_gather.busbw", "2-nodes", 300.0, None, Outcome.NO_LIMIT),
            bandwidth_verdict("smoke.storage.write", "n0", 2.0, 1.0, Outcome.PASS),
        ]
    )
    bars = [box for box in of_kind(drawn, Box) if box.style != "rail"]
    assert [(bar.title, bar.style) for bar in bars] == [
        ("all_reduce, 2 nodes: 80 of ≥ 340", "fill-fail"),
        ("all_reduce, 1 node: 400 of ≥ 380", "fill-pass"),
        ("all_gather, 2 nodes: 300 no limit", "fill-no-limit"),
    ]
    ticks = [line.points[0][0] for line in of_kind(drawn, Line) if line.style == "floor"]
    ends = [bar.x + bar.width for bar in bars]
    assert len(ticks) == 2 and ends[0] < ticks[0] and ends[1] > ticks[1], "what failed ends before its floor"
    assert bandwidth.against_floors([bandwidth_verdict("smoke.storage.write", "n0", 2.0, 1.0, Outcome.PASS)]) is None


def test_of_very_many_bandwidths_those_nearest_to_their_floors_are_shown_and_the_others_counted():
    scales = [
        bandwidth_verdict("nccl.all_reduce.busbw", f"{2**power}-nodes", 1000.0 - 40 * power, 300.0, Outcome.PASS)
        for power in range(1, 18)
    ]
    drawn = bandwidth.against_floors(scales)
    assert drawn.note == "3 more, which are further above their floors"
    assert not any("all_reduce, 2 nodes" in text for text in words(drawn))


def closed_run(phase: str, opened: str, closed: str, *outcomes: Outcome) -> Judged:
    verdicts = [a_verdict("discovery.kernel", f"n{number}", outcome) for number, outcome in enumerate(outcomes)]
    run = a_run(phase, plan={}).model_copy(update={"opened_at": opened})
    forged, seal = observed("run.closed_at", "job", "tomorrow", "text"), Closed(exit_code=0, closed_at=closed, files={})
    return replace(judged_of(*verdicts, run=run, observations=(forged,)), seal=Seal("", seal))


def test_a_step_stands_at_its_time_with_its_counts_and_what_is_wrong_first():
    runs = [
        closed_run("discovery", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", Outcome.PASS),
        closed_run("smoke", "2026-01-01T00:03:00Z", "2026-01-01T00:04:00Z", Outcome.FAIL, Outcome.FAIL),
    ]
    made = timeline([Section(run, "a", None, nowhere) for run in runs])
    bars = [(begin, width, step.seconds) for step, begin, width in made.steps]
    assert bars == [(0.0, 25.0, 60.0), (75.0, 25.0, 60.0)]
    assert (made.begin, made.end) == ("2026-01-01 00:00 UTC", "2026-01-01 00:04 UTC")
    assert [step.wrong for step, _, _ in made.steps] == ["", "n0: observed 1, expected 2; and 1 more"]
    assert '<span class="when-fail" style="left: 75.00%; width: 25.00%">' in page.render(gathered(*runs))
