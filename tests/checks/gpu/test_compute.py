"""Products of GPUs: which GPU or node is slow, and that the expected product is the product. And how devices of a node
become the one number that a gate judges: `from:` of a check."""

import compute
import torch
from bringup.kernel.facts.fold import ABSENT
from bringup.kernel.facts.observations import function
from bringup.kernel.plan import profile
from bringup.kernel.plan.catalogue import GATES, of_phase
from bringup.kernel.records import NotApplicable, Value, Verdict
from factory import a_run
from loops import for_each
from runs_for_tests import FAIL, OPEN, PASS, about, add_derived, in_words, judged, parsed_of
from showing import check_each, shows_failing

Facts = dict[str, Value | None]


def of_gate(phase: str, gate: str, facts: dict[str, Facts], gpus: int = 4) -> dict[str, Verdict]:
    """Node -> its verdict of this gate alone. facts: quantity -> subject -> value."""
    nodes = sorted({subject.partition("/")[0] for values in facts.values() for subject in values})
    others = [NotApplicable(gate=other.id, reason="not this test") for other in of_phase(phase) if other.id != gate]
    run = a_run(phase, nodes, gpus=gpus, profile="generic").model_copy(update={"left_out": others})
    parsed = parsed_of((fact, subject, value) for fact, values in facts.items() for subject, value in values.items())
    return about(gate, add_derived(parsed, run), run)


def speeds(*nodes: float | list[float | None]) -> Facts:
    """Of the nodes, or of the GPUs of each, one after the other."""
    return {
        f"n{number}/GPU-{gpu}" if isinstance(node, list) else f"n{number}": speed
        for number, node in enumerate(nodes)
        for gpu, speed in enumerate(node if isinstance(node, list) else [node])
    }


PEERS = ("smoke.compute.peers", "smoke.compute.tflops")
GPU_PEERS = ("smoke.compute.gpu_peers", "smoke.compute.gpu.tflops")
FAST = [700.0, 705.0, 690.0, 710.0]
SEVEN = [*FAST, 695.0, 700.0, 702.0]
SLOW_GPU = "0.7 (GPU-3: 490 TFLOP/s, the median of 8 devices is 700)"


@shows_failing("smoke.compute.peers", "smoke.compute.gpu_peers")
@for_each(
    (PEERS, speeds(700.0, 500.0, 705.0, 690.0), 2, [PASS, FAIL, PASS, PASS], ""),
    (PEERS, speeds(700.0, 100.0), 2, [], ""),  # two are not peers enough
    (GPU_PEERS, speeds([*SEVEN[:3], 490.0, *SEVEN[3:]]), 8, [FAIL], SLOW_GPU),
    (GPU_PEERS, speeds([*SEVEN, 680.0]), 8, [PASS], ""),
    (GPU_PEERS, speeds(FAST, [700.0, 690.0, 490.0, 710.0]), 4, [PASS, FAIL], "GPU-2"),
    (GPU_PEERS, speeds(FAST, [490.0] * 4), 4, [PASS, FAIL], ""),
    (GPU_PEERS, speeds([700.0] * 4, FAST[:3]), 4, [PASS, OPEN], "3 of 4 answered"),
    (GPU_PEERS, speeds([700.0] * 4, [*FAST[:3], None]), 4, [PASS, OPEN], "GPU-3: not read"),
    (GPU_PEERS, {"n0/cpu": 0.2}, 4, [OPEN], ""),  # it computed on its CPU
    (GPU_PEERS, speeds([700.0, 490.0]), 2, [], ""),
)
def test_a_node_or_a_gpu_far_below_its_peers_is_named_and_the_others_are_not(which, facts, gpus, outcomes, says):
    gate, fact = which
    nodes = sorted({subject.partition("/")[0] for subject in facts})
    right = [("smoke.compute.device.fallback", node, 0) for node in nodes]
    seen = [(fact, subject, speed) for subject, speed in facts.items()]
    by_gate = judged([*right, *seen], "smoke", nodes, gpus=gpus, profile_name="generic")
    verdicts = [verdict for verdict in by_gate.values() if verdict.gate == gate]
    assert [verdict.outcome for verdict in verdicts] == outcomes
    assert not says or says in in_words(verdicts[-1])[1]


@shows_failing("smoke.compute.memory_peers", "smoke.compute.copy_peers")
@for_each(
    ("memory", [3000.0, 2990.0, 2700.0], FAIL, "GPU-2: 2700"),
    ("memory", [3000.0, 2990.0, 2900.0], PASS, ""),
    ("memory", [3000.0, 2990.0, None], OPEN, "GPU-2: not read"),
    ("copies", [370.0, 20.0, 370.0], FAIL, "GPU-1: 20"),
    ("copies", [370.0, 300.0, 371.0], PASS, ""),
)
def test_a_gpu_with_slow_memory_or_one_slow_way_to_another_is_named(what, of_gpus, outcome, words):
    gate = f"smoke.compute.{'memory_peers' if what == 'memory' else 'copy_peers'}"
    usual = 3000.0 if what == "memory" else 370.0
    seen = of_gate("smoke", gate, {f"smoke.compute.gpu.{what}": speeds([usual] * 3, of_gpus)}, gpus=3)
    check_each(seen.values(), PASS, (outcome, words))


def test_gpus_are_not_compared_where_there_is_none():
    assert profile.load("local-cpu").reason_not_applicable("smoke.compute.gpu_peers") is not None


@for_each(7, 14, 35)
def test_the_product_that_compute_expects_is_the_product(size):
    left, right, table = compute.factors(size)
    for row in range(size):
        for column in range(size):
            assert sum(left[(row + k) % 7] * right[(k + column) % 7] for k in range(size)) == table[row % 7][column % 7]


def test_the_matrices_fit_a_gpu_and_are_whole_from_16_gib_on():
    """Both dimensions of a part of a GPU, too, are whole rounds of the factors and of tensor cores."""
    gib = 2**30
    for memory in (80 * gib, 16 * gib):
        assert compute.size_for(memory) == compute.SIZE["cuda"]
    for memory in (gib, 5 * gib, 10 * gib):  # parts of an A100 have 5 and 10
        size = compute.size_for(memory)
        assert size < compute.SIZE["cuda"] and size % 112 == 0
        assert size**2 * compute.PEAK_BYTES <= memory / compute.SHARE
    assert compute.size_for(2**20) == 112


def test_sums_stay_exact_in_float32_and_every_position_matters():
    for size in compute.SIZE.values():
        assert size % 112 == 0
        assert size * 9 < 2**24
    assert len({value for row in compute.factors(7)[2] for value in row}) > 3


@for_each(torch.bfloat16, torch.float16, torch.float32)
def test_the_wrong_element_of_a_drill_is_seen_in_every_dtype(dtype):
    """One more was lost in bf16, whose neighbours are 64 apart where the sums of a GPU's product lie."""
    table = torch.tensor(compute.factors(compute.SIZE["cuda"])[2], dtype=torch.float64).to(dtype)
    product = table.clone()
    compute.spoil(product)
    assert int((product != table).sum()) == 1


SLOW = {"smoke.compute.host_to_device": 1.0, "smoke.compute.device_to_device": 30.0, "smoke.compute.memory": 2600.0}


@shows_failing(*SLOW)
@for_each(*SLOW.items())
def test_a_slow_copy_fails(gate, value):
    facts = {gate: value, "smoke.compute.device": "cuda", "smoke.compute.device.fallback": 0}
    seen = [(name, "n0", of_node) for name, of_node in (facts | {"smoke.compute.wrong_values": 0}).items()]
    assert judged(seen, "smoke", ["n0"])[f"{gate} n0"].outcome is FAIL


# ---- folds

TWO = {f"{node}/GPU-{gpu}": speed for node, speed in (("n0", 700.0), ("n1", 595.0)) for gpu in range(4)}
SHARES: list[tuple[str, str, str, Facts, list[Value]]] = [  # phase, gate, fact, values -> a share for each node
    # of two nodes the better one is usual, whichever gate compares them
    ("node_sweep", "sweep.load.peers", "sweep.gpu.load.tflops", TWO, [1.0, 0.85]),
    ("smoke", *GPU_PEERS, TWO, [1.0, 0.85]),
    ("discovery", "discovery.memory", "inventory.memory", {"n0": 1000.0, "n1": 750.0}, [1.0, 0.75]),
    # GPUs of one node alone are compared with themselves
    ("smoke", *GPU_PEERS, TWO | {subject: None for subject in TWO if subject.startswith("n1")}, [None, None]),
    # a node without any speed is one of its peers
    ("node_sweep", "sweep.inside.peers", "sweep.inside.busbw", {"n0": 0.0, "n1": 400.0, "n2": 500.0}, [0.0, 1.0, 1.25]),
]


@for_each(*SHARES)
def test_a_node_is_compared_with_what_is_usual(phase, gate, fact, values, shares):
    by_node = of_gate(phase, gate, {fact: values})
    assert [verdict.value for verdict in by_node.values()] == shares
    assert gate != "discovery.memory" or [verdict.outcome for verdict in by_node.values()] == [PASS, FAIL]


@for_each(
    ("node_sweep", "sweep.device.fallback", "sweep.gpu.device.fallback", 1, 0),
    ("node_sweep", "sweep.load.pcie", "sweep.gpu.load.pcie", 1, 0),
    ("node_sweep", "sweep.load.drift", "sweep.gpu.load.drift", 0.1, 1.0),
    ("smoke", *GPU_PEERS, 70.0, 700.0),
)
def test_a_fault_that_was_seen_beats_a_device_that_was_silent(phase, gate, fact, bad, good):
    facts: Facts = {f"n{node}/GPU-{gpu}": good for node in (0, 1) for gpu in range(4)} | {"n1/GPU-1": None}
    check_each(of_gate(phase, gate, {fact: facts | {"n1/GPU-0": bad}}).values(), PASS, FAIL)
    check_each(of_gate(phase, gate, {fact: facts}).values(), PASS, (OPEN, "not read"))


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
    by_node = of_gate("discovery", "discovery.library.libc", {"inventory.library.libc": facts})
    assert {verdict.outcome for verdict in by_node.values()} == {FAIL}
    assert {verdict.cause for verdict in by_node.values()} == {"2 different values and no majority"}
