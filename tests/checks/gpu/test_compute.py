"""Products of GPUs: which GPU or node is slow, and that the expected product is the product."""

import json

import compute
import pytest
from bringup.evidence.parsed import Parsed
from bringup.plan import profile
from bringup.records import Outcome
from factory import a_run
from runs_for_tests import about, add_derived
from showing import shows_failing


def speeds(**tflops: float) -> dict[str, Outcome]:
    run = a_run("smoke", list(tflops))
    parsed = Parsed()
    for node, value in tflops.items():
        parsed.saw("smoke.compute.tflops", node, value, "TFLOP/s", "f")
        parsed.saw("smoke.compute.device.fallback", node, 0, "count", "f")
    verdicts = about("smoke.compute.peers", add_derived(parsed, run), run, "generic")
    return {node: verdict.outcome for node, verdict in verdicts.items()}


@shows_failing("smoke.compute.peers")
def test_a_node_far_below_its_peers_is_named_and_the_others_are_not():
    assert speeds(n0=700.0, n1=500.0, n2=705.0, n3=690.0) == {
        "n0": Outcome.PASS,
        "n1": Outcome.FAIL,
        "n2": Outcome.PASS,
        "n3": Outcome.PASS,
    }


def test_two_nodes_are_not_peers_enough():
    assert speeds(n0=700.0, n1=100.0) == {}


def gpus(gpus_per_node: int = 4, **nodes: list[float | None]) -> dict[str, tuple[Outcome, str]]:
    """What is judged of nodes whose GPUs multiply at these speeds."""
    run = a_run("smoke", list(nodes), gpus=gpus_per_node)
    parsed = Parsed()
    for node, several in nodes.items():
        parsed.saw("smoke.compute.device.fallback", node, 0, "count", "f")
        for index, speed in enumerate(several):
            parsed.saw(
                "smoke.compute.gpu.tflops",
                f"{node}/GPU-{index}",
                speed,
                "TFLOP/s",
                "f",
                "why" if speed is None else None,
            )
    verdicts = about("smoke.compute.gpu_peers", add_derived(parsed, run), run, "generic")
    return {gpu: (verdict.outcome, f"{verdict.observed} {verdict.cause}") for gpu, verdict in verdicts.items()}


@shows_failing("smoke.compute.gpu_peers")
def test_one_gpu_of_eight_that_is_a_third_slower_fails_on_a_single_node_and_is_named():
    healthy = [700.0, 705.0, 690.0, 710.0, 695.0, 700.0, 702.0]
    by_gpu = gpus(gpus_per_node=8, n0=[*healthy[:3], 490.0, *healthy[3:]])
    assert by_gpu["n0"][0] is Outcome.FAIL
    assert "0.7 (GPU-3: 490 TFLOP/s, the median of 8 devices is 700)" in by_gpu["n0"][1]
    assert gpus(gpus_per_node=8, n0=[*healthy, 680.0])["n0"][0] is Outcome.PASS


def test_of_two_nodes_the_one_with_the_slow_gpu_is_named_and_so_is_one_that_is_slow_as_a_whole():
    fast = [700.0, 705.0, 690.0, 710.0]
    by_gpu = gpus(n0=fast, n1=[700.0, 690.0, 490.0, 710.0])
    assert {node: outcome for node, (outcome, _) in by_gpu.items()} == {"n0": Outcome.PASS, "n1": Outcome.FAIL}
    by_gpu = gpus(n0=fast, n1=[490.0] * 4)
    assert {node: outcome for node, (outcome, _) in by_gpu.items()} == {"n0": Outcome.PASS, "n1": Outcome.FAIL}


@pytest.mark.parametrize("silent", [[700.0, 690.0, 705.0], [700.0, 690.0, 705.0, None]])
def test_a_node_of_which_a_gpu_says_nothing_is_incomplete_and_not_as_fast_as_the_rest(silent):
    by_gpu = gpus(n0=[700.0] * 4, n1=silent)
    assert (by_gpu["n0"][0], by_gpu["n1"][0]) == (Outcome.PASS, Outcome.INCOMPLETE)
    assert ("GPU-3: why" if None in silent else "3 of 4 answered") in by_gpu["n1"][1]


def test_of_a_node_that_computed_on_its_cpu_it_is_not_known_whether_its_gpus_are_as_fast():
    parsed = Parsed()
    parsed.saw("smoke.compute.gpu.tflops", "n0/cpu", 0.2, "TFLOP/s", "f")
    add_derived(parsed, a_run("smoke", ["n0"], gpus=4))
    values = [(fact.value, fact.why) for fact in parsed.observations if fact.quantity == "smoke.compute.gpu_peers"]
    assert (None, "1 of 4 answered") in values


def test_gpus_are_compared_where_a_node_has_peers_enough_and_not_where_there_is_no_gpu():
    assert gpus(gpus_per_node=2, n0=[700.0, 490.0]) == {}
    assert profile.load("local-cpu").reason_not_applicable("smoke.compute.gpu_peers") is not None


def test_facts_of_compute_are_bounded_lines():
    text = json.dumps({"devices": [f"NVIDIA H100 80GB HBM3 GPU-{index:032x}" for index in range(8)]})
    assert len(text) < 1000 - 200


@pytest.mark.parametrize("size", [7, 14, 35])
def test_the_product_that_compute_expects_is_the_product(size):
    left, right, table = compute.factors(size)
    for row in range(size):
        for column in range(size):
            product = sum(left[(row + k) % 7] * right[(k + column) % 7] for k in range(size))
            assert product == table[row % 7][column % 7]


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


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_the_wrong_element_of_a_drill_is_seen_in_every_dtype(dtype):
    """One more was lost in bf16, whose neighbours are 64 apart where the sums of a GPU's product lie."""
    import torch

    table = torch.tensor(compute.factors(compute.SIZE["cuda"])[2], dtype=torch.float64).to(getattr(torch, dtype))
    product = table.clone()
    compute.spoil(product)
    assert int((product != table).sum()) == 1


@pytest.mark.parametrize(
    ("gate", "value"),
    [
        pytest.param("smoke.compute.host_to_device", 1.0, marks=shows_failing("smoke.compute.host_to_device")),
        pytest.param("smoke.compute.device_to_device", 30.0, marks=shows_failing("smoke.compute.device_to_device")),
    ],
)
def test_a_slow_copy_fails(gate, value):
    run = a_run("smoke", ["n0"], profile="h100-8x400g")
    parsed = Parsed()
    parsed.saw(gate, "n0", value, "GB/s", "f")
    parsed.saw("smoke.compute.device", "n0", "cuda", "text", "f")
    parsed.saw("smoke.compute.device.fallback", "n0", 0, "count", "f")
    parsed.saw("smoke.compute.wrong_values", "n0", 0, "count", "f")
    assert about(gate, parsed, run)["n0"].outcome is Outcome.FAIL
