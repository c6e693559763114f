"""Samples of all nodes stand on one time axis: each node's clock was compared with the others'."""

import pytest
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.records import Outcome
from bringup.readers import clock, monitor
from bringup.report.charts import sampled
from factory import a_run
from runs_for_tests import about, add_derived

NODES = ["n0", "n1", "n2"]
BEHIND_S = {"n0": 0.0, "n1": 2.0, "n2": 0.0}  # n1's clock is 2 s behind
BURST_AT = 1_000_010.0  # when all nodes become busy together, on the reference's clock


def samples() -> str:
    """What the monitor wrote: each node stamps with its own clock."""
    return "".join(
        f"0: {node},{1_000_000.0 + second - BEHIND_S[node]:.3f},{100.0 if 1_000_000.0 + second >= BURST_AT else 1.0},"
        f"1.00,{second}000000,0,,,,0.10,,\n"
        for second in range(20)
        for node in NODES
    )


def compared(*nodes: str) -> Parsed:
    parsed = monitor.parse(samples(), "raw/monitor.csv", 20.0)
    for node in nodes:
        parsed.saw(clock.BEHIND, node, BEHIND_S[node], "s", "raw/clock.jsonl:1")
        parsed.saw(clock.UNCERTAINTY, node, 0.0001 if node != "n0" else 0.0, "s", "raw/clock.jsonl:2")
    for node in set(NODES) - set(nodes):
        why = "nothing was measured against n0: Connection refused"
        parsed.saw(clock.BEHIND, node, None, "s", "raw/clock.jsonl:3", why)
    add_derived(parsed, a_run("nccl_monitoring", NODES))
    return parsed


def bursts(parsed: Parsed) -> dict[str, float]:
    """Node -> when its CPU became busy, as it is plotted."""
    rows = monitor.read(samples(), "f").nodes
    shifts = clock.shifts(parsed.observations)
    moments = {node: zip(monitor.times(rows[node], shifts.get(node)), rows[node], strict=True) for node in NODES}
    return {node: next(at for at, row in moments[node] if float(row["cpu_percent"]) > 50) for node in NODES}


def verdicts(parsed: Parsed) -> dict[str, tuple[Outcome, str]]:
    verdicts = about("nccl.monitor.clock", parsed, a_run("nccl_monitoring", NODES))
    return {node: (verdict.outcome, f"{verdict.observed} {verdict.cause}") for node, verdict in verdicts.items()}


def test_what_happened_at_one_moment_is_plotted_at_one_moment_though_a_clock_is_off():
    assert bursts(compared(*NODES)) == pytest.approx(dict.fromkeys(NODES, BURST_AT))
    assert bursts(compared("n0", "n2"))["n1"] == BURST_AT - 2


def test_a_clock_that_is_off_and_was_measured_is_no_fault_of_the_samples_and_is_said():
    by_gate = verdicts(compared(*NODES))
    assert {outcome for outcome, _ in by_gate.values()} == {Outcome.PASS}
    assert "2.000000 ± 0.000100 s behind the median of 3 nodes; its samples are moved by +2.000 s" in by_gate["n1"][1]


def test_a_node_whose_clock_was_not_compared_is_incomplete_alone_with_the_reason():
    by_gate = verdicts(compared("n0", "n2"))
    assert [node for node, (outcome, _) in by_gate.items() if outcome is not Outcome.PASS] == ["n1"]
    assert by_gate["n1"][0] is Outcome.INCOMPLETE
    assert "stand at its own time: nothing was measured against n0: Connection refused" in by_gate["n1"][1]


def test_a_comparison_as_coarse_as_the_sampling_is_none():
    parsed = monitor.parse(samples(), "raw/monitor.csv", 20.0)
    for node in NODES:
        parsed.saw(clock.BEHIND, node, BEHIND_S[node], "s", "e")
        parsed.saw(clock.UNCERTAINTY, node, 0.7 if node == "n1" else 0.0001, "s", "e")
    add_derived(parsed, a_run("nccl_monitoring", NODES))
    assert verdicts(parsed)["n1"][0] is Outcome.FAIL


def test_a_picture_says_which_clocks_were_put_right():
    rows = monitor.read(samples(), "f").nodes
    assert sampled.clocks(rows, clock.shifts(compared(*NODES).observations)) == "clocks put right to ± 0.0001 s"
    but_one = clock.shifts(compared("n0", "n2").observations)
    assert sampled.clocks(rows, but_one) == "clocks put right to ± 0.0001 s, but not of n1"
    assert sampled.clocks(rows, {}) == "times are the nodes' own"


def test_a_clock_whose_uncertainty_nobody_knows_has_no_offset():
    parsed = Parsed()
    for node, uncertainty in (("n0", 0.0), ("n1", 0.0001), ("n2", None), ("n3", ...), ("n4", -1.0)):
        parsed.saw(clock.BEHIND, node, 0.001, "s", "raw/clock.jsonl:1")
        if uncertainty is not ...:
            parsed.saw(clock.UNCERTAINTY, node, uncertainty, "s", "raw/clock.jsonl:2", "no answer")
    assert set(clock.shifts(parsed.observations)) == {"n0", "n1"}
