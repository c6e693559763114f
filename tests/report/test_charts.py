"""Figures of the page: what stands where, what is marked, and that a fleet stays readable."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from bringup.compare.entries import Entry
from bringup.derive.provenance import CLOSED_AT, CLOSED_AT_IN
from bringup.judge import Judged
from bringup.plan import profile
from bringup.plan.rounds import in_advance
from bringup.records import Observation, Outcome
from bringup.report import page, timeline
from bringup.report.charts import bandwidth, drawing, pairs, training
from bringup.report.charts.drawing import Axis, Box, Drawing, Line, Squares, Text
from bringup.report.links import nowhere
from bringup.report.section import section
from bringup.results import TrainingRecords
from factory import a_run, a_verdict, gathered, judged_of
from loops import for_each
from trained_runs import RECORDS

SLOW = "n77"


def sent(source: str, target: str, speed: float) -> Observation:
    return Observation(
        quantity="pair.bandwidth",
        subject=f"{source}->{target}",
        value=speed,
        unit="GB/s",
        evidence="raw/pairs-0.jsonl:1",
    )


def a_fleet(count: int, rounds: int = 6) -> tuple[list[str], list[Observation]]:
    """All healthy but SLOW, which sends at a tenth."""
    nodes = [f"n{number}" for number in range(count)]
    seen = [
        sent(source, target, 4.0 if source == SLOW else 46.0)
        for pairs_of_round in in_advance(nodes, rounds)
        for pair in pairs_of_round
        for source, target in (pair, tuple(reversed(pair)))
    ]
    return nodes, seen


S = TypeVar("S")


def of_kind(drawn: Drawing, kind: type[S]) -> list[S]:
    return [shape for shape in drawn.shapes if isinstance(shape, kind)]


def words(drawn: Drawing) -> list[str]:
    return [text.words for text in of_kind(drawn, Text)]


@for_each("is_log", [True, False])
def test_ticks_are_round_numbers_inside_of_the_axis(is_log: bool):
    axis = Axis(0.003, 420.0, 0.0, 100.0, is_log)
    ticks = axis.ticks()
    assert 3 <= len(ticks) <= 8
    assert all(axis.low <= tick <= axis.high and 0 <= axis.at(tick) <= 100 for tick in ticks)
    assert ticks == [0.01, 0.1, 1.0, 10.0, 100.0] if is_log else [0, 100, 200, 300, 400]


def test_one_number_alone_has_an_axis_too():
    flat = drawing.lines("t", [drawing.Series("a", [(1.0, 5.0), (2.0, 5.0)])], "step", "ms")
    assert {
        round(y) for line in of_kind(flat, Line) if line.style == "line-0" and line.title for _, y in line.points
    } == {117}


def curve_of(*speeds: float, scale: str = "2-nodes") -> list[Observation]:
    return [
        Observation(quantity=f"nccl.all_reduce.busbw@{size}", subject=scale, value=speed, unit="GB/s", evidence="e")
        for size, speed in zip(("8KiB", "16MiB", "8GiB"), speeds, strict=False)
    ]


def test_a_floor_stands_at_its_size_and_a_ceiling_across_the_whole_figure():
    [drawn] = bandwidth.draw(curve_of(0.1, 30.0, 380.0), profile.load("h100-8x400g"))
    [floor] = [line for line in of_kind(drawn, Line) if line.style == "floor" and line.title]
    [ceiling] = [line for line in of_kind(drawn, Line) if line.style == "ceiling" and line.title]
    [measured] = [line for line in of_kind(drawn, Line) if line.style == "line-0" and line.title]
    at = measured.points[-1][0]
    assert floor.points[0][0] < at <= floor.points[1][0] + 1
    assert (ceiling.points[0][0], ceiling.points[1][0]) == (46.0, 360.0)
    assert "8GiB" in floor.title and "the ceiling" in ceiling.title
    assert {floor.title, ceiling.title, "2-nodes", "8KiB"} <= set(words(drawn))


def test_a_collective_of_which_nothing_is_expected_says_so():
    [drawn] = bandwidth.draw(curve_of(0.1, 1.0), profile.load("generic"))
    assert drawn.note == "The profile expects no number of it."
    assert bandwidth.draw(curve_of(0.1), profile.load("generic")) == []  # one size is no curve


def test_few_nodes_have_names_and_numbers_and_what_failed_is_outlined():
    seen = [sent("n0", "n1", 40.0), sent("n1", "n0", 4.0), sent("n0", "n2", 46.0)]
    failed = a_verdict("nccl.pair.link", "n0--n1")
    [drawn] = pairs.draw(seen, ["n0", "n1", "n2"], [failed, a_verdict("nccl.pair.node", "n2", Outcome.PASS)])
    outlined = [box.title for box in of_kind(drawn, Box) if box.style == "outlined"]
    assert outlined == ["n0 → n1: 40 GB/s", "n1 → n0: 4 GB/s"]
    assert {"n0", "n1", "n2", "40", "4", "46"} <= set(words(drawn))
    assert drawn.note.startswith("3 of 6 directions measured; a healthy one has 43 GB/s; slowest: n1 → n0 4,")


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


def test_what_was_not_measured_between_nodes_is_no_figure():
    assert pairs.draw([], ["n0", "n1"], []) == []


def an_entry(name: str) -> Entry:
    records = TrainingRecords(RECORDS / name)
    return Entry(Path(name), a_run(name), Outcome.PASS, records.args, records.metrics)


def test_strategies_lie_over_each_other_and_exposed_communication_stands_beside_speed():
    runs = [an_entry("run_ddp_2node"), an_entry("run_1gpu")]
    losses, gaps, speeds, exposed = training.deciding(runs)
    thick, thin = [line for line in of_kind(losses, Line) if line.style.startswith("line-") and line.title]
    assert (thick.title, thick.style, thin.style) == ("run_1gpu", "line-0 wide", "line-1")
    assert gaps.title == "Loss gap to run_1gpu, nats per token"
    assert [box.title.partition(":")[0] for box in of_kind(speeds, Box)] == ["run_1gpu", "run_ddp_2node"]
    share = runs[0].metrics.communication_share
    assert share is not None
    assert of_kind(exposed, Box)[-1].title == f"run_ddp_2node: {100 * share:.3g} %"


def test_runs_of_a_resumed_playbook_have_short_names_and_repeated_ones_their_own():
    books = {"run_1gpu": "a", "run_ddp_2node": "b"}
    first, other = (replace(an_entry(name), folder=Path(f"{name}-{book}")) for name, book in books.items())
    assert {"run_1gpu", "run_ddp_2node"} <= set(words(training.deciding([first, other])[2]))
    again = replace(first, folder=Path("run_1gpu-c"))
    assert {"run_1gpu-a", "run_1gpu-c"} <= set(words(training.deciding([first, again])[2]))


def test_ranks_of_one_are_no_figure():
    assert training.of_ranks(an_entry("run_1gpu")) == []
    assert len(training.of_ranks(an_entry("run_ddp_2node"))) == 2


def closed_run(phase: str, opened: str, closed: str, *outcomes: Outcome) -> Judged:
    verdicts = [a_verdict("discovery.kernel", f"n{number}", outcome) for number, outcome in enumerate(outcomes)]
    run = a_run(phase, plan={}).model_copy(update={"opened_at": opened})
    forged, at = (
        Observation(quantity=CLOSED_AT, subject="job", value=value, unit="text", evidence=where)
        for value, where in (("tomorrow", "raw/x.jsonl:1"), (closed, CLOSED_AT_IN))
    )
    return judged_of(*verdicts, run=run, observations=(forged, at))


def test_a_step_stands_at_its_time_with_its_counts_and_what_is_wrong_first():
    runs = [
        closed_run("discovery", "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z", Outcome.PASS),
        closed_run("smoke", "2026-01-01T00:03:00Z", "2026-01-01T00:04:00Z", Outcome.FAIL, Outcome.FAIL),
    ]
    made = timeline.timeline([section(run, "a", None, nowhere) for run in runs], runs)
    assert [(row.begin, row.width, row.seconds) for row in made.rows] == [(0.0, 25.0, 60.0), (75.0, 25.0, 60.0)]
    assert (made.begin, made.end) == ("2026-01-01 00:00 UTC", "2026-01-01 00:04 UTC")
    assert made.rows[0].wrong == ""
    assert made.rows[1].wrong == "n0: observed 1, expected 2; and 1 more"
    shown = page.render(gathered(*runs))
    assert '<span class="when-fail" style="left: 75.00%; width: 25.00%">' in shown


def test_a_name_is_a_text_in_a_figure():
    evil = 'n0"><script>'
    run = judged_of(run=a_run("nccl_pairwise", (evil, "n1"), plan={}), observations=(sent(evil, "n1", 4.0),))
    shown = page.render(gathered(run))
    assert re.search(r'<text class="end"[^>]*>n0&#34;&gt;&lt;script&gt;</text>', shown)
    assert "n0&#34;&gt;&lt;script&gt; → n1: 4 GB/s</title>" in shown
