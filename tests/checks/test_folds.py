"""How devices of a node become the one number that a gate judges: `from:` of a check."""

from __future__ import annotations

from bringup.derive.fold import ABSENT
from bringup.derive.observed import function
from bringup.evidence.parsed import Parsed
from bringup.plan.catalogue import GATES, of_phase
from bringup.records import NotApplicable, Outcome, Value, Verdict
from factory import a_run
from runs_for_tests import about, add_derived

Facts = dict[str, Value | None]


def judged(phase: str, gate: str, unit: str, facts: dict[str, Facts], gpus: int = 4) -> dict[str, Verdict]:
    """Node -> its verdict. facts: quantity -> subject -> value."""
    parsed = Parsed()
    for quantity, values in facts.items():
        for subject, value in values.items():
            parsed.saw(quantity, subject, value, unit, "raw/x.jsonl:1", "no answer" if value is None else None)
    nodes = sorted({subject.partition("/")[0] for values in facts.values() for subject in values})
    others = [NotApplicable(gate=other.id, reason="not this test") for other in of_phase(phase) if other.id != gate]
    run = a_run(phase, nodes, gpus=gpus, profile="generic").model_copy(update={"left_out": others})
    return about(gate, add_derived(parsed, run), run)


def test_of_two_nodes_the_better_one_is_usual_whichever_gate_compares_them():
    speeds: Facts = {f"{node}/GPU-{gpu}": speed for node, speed in (("n0", 700.0), ("n1", 595.0)) for gpu in range(4)}
    for phase, gate, fact in (
        ("node_sweep", "sweep.load.peers", "sweep.gpu.load.tflops"),
        ("smoke", "smoke.compute.gpu_peers", "smoke.compute.gpu.tflops"),
    ):
        by_node = judged(phase, gate, "TFLOP/s", {fact: speeds})
        assert {node: verdict.value for node, verdict in by_node.items()} == {"n0": 1.0, "n1": 0.85}, gate


def test_of_two_nodes_the_one_with_less_memory_differs_and_the_other_does_not():
    by_node = judged("discovery", "discovery.memory", "GiB", {"inventory.memory": {"n0": 1000.0, "n1": 750.0}})
    assert {node: (verdict.outcome, verdict.value) for node, verdict in by_node.items()} == {
        "n0": (Outcome.PASS, 1.0),
        "n1": (Outcome.FAIL, 0.75),
    }


def test_a_node_without_any_speed_is_one_of_its_peers():
    by_node = judged(
        "node_sweep", "sweep.inside.peers", "GB/s", {"sweep.inside.busbw": {"n0": 0.0, "n1": 400.0, "n2": 500.0}}
    )
    assert {node: verdict.value for node, verdict in by_node.items()} == {"n0": 0.0, "n1": 1.0, "n2": 1.25}


def test_a_fault_that_was_seen_beats_a_device_that_was_silent():
    for phase, gate, fact, bad, good in (
        ("node_sweep", "sweep.device.fallback", "sweep.gpu.device.fallback", 1, 0),
        ("node_sweep", "sweep.load.pcie", "sweep.gpu.load.pcie", 1, 0),
        ("node_sweep", "sweep.load.drift", "sweep.gpu.load.drift", 0.1, 1.0),
        ("smoke", "smoke.compute.gpu_peers", "smoke.compute.gpu.tflops", 70.0, 700.0),
    ):
        unit = {"sweep.load.drift": "ratio", "smoke.compute.gpu_peers": "TFLOP/s"}.get(gate, "count")
        facts: Facts = {f"n0/GPU-{gpu}": good for gpu in range(4)} | {f"n1/GPU-{gpu}": good for gpu in range(4)}
        seen = judged(phase, gate, unit, {fact: {**facts, "n1/GPU-0": bad, "n1/GPU-1": None}})
        assert (seen["n0"].outcome, seen["n1"].outcome) == (Outcome.PASS, Outcome.FAIL), gate
        silent = judged(phase, gate, unit, {fact: {**facts, "n1/GPU-1": None}})
        assert (silent["n0"].outcome, silent["n1"].outcome) == (Outcome.PASS, Outcome.INCOMPLETE), gate
        assert "no answer" in (silent["n1"].cause or ""), gate


def test_what_is_computed_is_a_function_of_the_room_and_no_more_than_a_third_of_the_checks():
    computed = [gate.fold.facts for gate in GATES.values() if gate.fold.how == "computed"]
    assert len(computed) * 3 <= len(GATES)
    for name in {name for names in computed for name in names}:
        assert callable(function(name)), name


def test_every_fold_makes_something_that_its_check_can_judge():
    for gate in GATES.values():
        if gate.fold.how in ("worst", "count", "against-peers", "against-all", "alike", "rise"):
            assert gate.unit not in ("text", "flag"), gate.id
            assert gate.per in ("node", "job"), gate.id
        if gate.fold.how.startswith("against"):
            assert gate.unit in ("ratio", "share") and gate.rule in ("at_least", "between"), gate.id


def test_where_half_of_the_nodes_lack_a_library_nobody_says_which_half_is_right():
    facts: Facts = {"n0": "2.36", "n1": "2.36", "n2": ABSENT, "n3": ABSENT}
    by_node = judged("discovery", "discovery.library.libc", "text", {"inventory.library.libc": facts})
    assert {verdict.outcome for verdict in by_node.values()} == {Outcome.FAIL}
    assert {verdict.cause for verdict in by_node.values()} == {"2 different values and no majority"}
