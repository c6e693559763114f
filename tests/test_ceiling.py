"""The ceiling of collectives over k nodes, and what profiles make of it, against values computed by hand."""

from collections import defaultdict

import predictors
import pytest
from bringup.kernel import judge
from bringup.kernel.errors import FileError
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan import ceiling
from bringup.kernel.plan.expectation import Share
from bringup.kernel.plan.profile import Profile, load, parse
from bringup.kernel.records import Outcome, Verdict, known
from factory import a_run
from loops import for_each
from showing import check, shows_failing

NODES = (1, 2, 4, 8, 16, 32, 64)
ALL_REDUCE = "nccl.all_reduce.busbw"
H100 = load("h100-8x400g")


@for_each(
    # 48 (8k - 1) / (k - 1): 720, 496, 432, 406.4, 394.8, 389.3; NVLink reaches 480
    (ALL_REDUCE, "best", [480, 480, 480, 432, 406.4, 394.8, 389.3]),
    (ALL_REDUCE, "ring", [480, 384, 384, 384, 384, 384, 384]),  # all NICs of a node
    ("nccl.all_gather.busbw", "best", [361] * 7),  # 384, and NVLink without NVLS
    ("nccl.reduce_scatter.busbw", "best", [361] * 7),
    # one NIC per GPU for what leaves the node: 48 (8k - 1) / (8k - 8)
    ("nccl.all_to_all.busbw", "best", [361, 90, 62, 54, 50.8, 49.4, 48.7]),
)
def test_a_collective_is_bounded_by_nvlink_inside_and_the_nics_between(gate, algorithm, expected):
    known = [ceiling.ceiling(gate, H100.machine, nodes, algorithm) for nodes in NODES]
    assert [round(each.gb_per_s, 1) for each in known if isinstance(each, ceiling.Ceiling)] == expected


def test_many_small_nics_are_as_good_as_a_large_one():
    ours, theirs = (load(name).machine for name in ("h100-efa-p5", "h200-efa-p5en"))
    for gate in ("nccl.all_gather.busbw", "nccl.all_to_all.busbw"):
        for nodes in NODES[1:]:
            assert ceiling.ceiling(gate, ours, nodes) == ceiling.ceiling(gate, theirs, nodes)


PUBLISHED = known("busbw", list[predictors.BusBandwidth])


@for_each(*PUBLISHED)
def test_what_others_published_passes_and_half_of_it_does_not(row):
    assert row.gb_per_s / 2 < row.floor() < row.gb_per_s


def test_the_share_that_a_floor_promises_is_below_the_worst_that_was_published_over_its_fabric():
    assert len(PUBLISHED) >= 8
    assert len({row.source for row in PUBLISHED}) >= 5
    shares, promised = defaultdict(list), defaultdict(set)
    for row in PUBLISHED:
        if isinstance(row.promised, Share):
            kind = (row.fabric, row.operation, row.promised.algorithm)
            shares[kind].append(row.share())
            promised[kind].add(row.promised.share_of_ceiling)
    assert {fabric for fabric, _, _ in shares} == {"NVLink", "InfiniBand", "EFA", "GCP"}
    for kind, of_kind in shares.items():
        assert max(promised[kind]) < min(of_kind), kind


FLOORS = {
    # 0.9 x 480, twice; 0.9 x 384; 0.85 x 406.4, 394.8, 389.3
    "h100-8x400g": [432, 432, 345.6, 345.6, 345.4, 335.6, 330.9],
    "h200-8x400g": [425.7, 425.7, 345.6, 345.6, 345.4, 335.6, 330.9],  # 0.9 x 473, twice; the same NICs
    "h100-roce-8x400g": [432, 432, 307.2, 307.2, 307.2, 307.2, 307.2],  # 0.8 x 384
    "h100-efa-p5": [432, 432, 300, 300, 300, 300, 300],  # 0.75 x 32 x 12.5
    "h100-gcp-a3-mega": [432, 250, 150, 150, 150, 150, 150],  # a gate of two nodes; 0.75 x 8 x 25
    "h200-gcp-a3-ultra": [425.7, 250, 249.6, 249.6, 249.6, 249.6, 249.6],  # a gate of two nodes; 0.65 x 384
    "h100-azure-ndv5": [432, 400, 345.6, 345.6, 345.4, 335.6, 330.9],  # a warning of two nodes; as H100
    "a100-8x200g": [211.5, 169, 169, 169, 169, 169, 169],  # 0.9 x 235; 0.88 x 192
    "b200-8x400g": [754.2, 440, 345.6, 345.6, 345.4, 335.6, 330.9],  # 0.9 x 838; a number; as H100
    # a number; 0.85 x 838 in one NVLink domain of 18 nodes; a number
    "gb200-nvl72": [600, 712.3, 712.3, 712.3, 712.3, 344, 344],
}


@for_each(*FLOORS)
def test_the_floor_of_all_reduce_at_each_number_of_nodes(name):
    assert [load(name).limit(ALL_REDUCE, nodes).value for nodes in NODES] == FLOORS[name]


def test_a_pair_is_two_nodes_however_many_the_run_has():
    assert [H100.limit("nccl.pair.slowest", nodes).value for nodes in (2, 64)] == [312, 312]  # 0.65 x 480


def test_where_no_ceiling_is_known_there_is_no_number():
    limit = load("gb200-nvl72").limit("nccl.all_gather.busbw", 19)
    assert limit.value is None
    assert "no ceiling is known beyond one NVLink domain, 18 nodes" in str(limit.why)
    partly = H100.limit(ALL_REDUCE, 2, gpus_per_node=4)
    assert partly.value is None
    assert "nodes with 8 GPUs, and 4 are used" in str(partly.why)


def judged(profile: Profile, busbw: float, nodes: int) -> Verdict:
    scale = f"{nodes}-nodes"
    run = a_run("nccl_scaling", [f"n{number}" for number in range(nodes)], gpus=8)
    parsed = Parsed()
    for gate, value, unit in (
        ("nccl.ranks", nodes * 8, "count"),
        ("nccl.hosts", nodes, "count"),
        ("nccl.wrong_values", 0, "count"),
        (f"{ALL_REDUCE}@8GiB", busbw, "GB/s"),
    ):
        parsed.saw(gate, scale, value, unit, "f:1")
    verdicts = judge.judge(run, profile, parsed).verdicts
    return next(verdict for verdict in verdicts if (verdict.gate, verdict.subject) == (ALL_REDUCE, scale))


def test_a_bandwidth_that_no_machine_has_is_not_believed():
    """A unit or a clock that slipped, ranks that never left a GPU: each gives such a number."""
    for value in (48_000.0, 1e300):
        check(judged(H100, value, 2), Outcome.INCOMPLETE, "is more than this machine can reach: the ceiling")


@shows_failing(ALL_REDUCE)
def test_the_verdict_says_which_number_applied():
    good, bad = judged(H100, 350, 16), judged(H100, 340, 16)
    assert (good.outcome, bad.outcome) == (Outcome.PASS, Outcome.FAIL)
    assert good.limit == 345.4
    assert good.basis == "from 16 nodes on 0.85 of the ceiling, 406.4 GB/s on 16 nodes, set by the NICs"
    assert good.expected == f"≥ 345.4 GB/s at 8GiB ({good.basis})"
    ring = "≥ 345.6 GB/s at 8GiB (from 3 nodes on 0.9 of the ceiling of a ring"
    assert judged(H100, 350, 4).expected.startswith(ring)


def test_a_scale_without_a_number_is_measured_without_a_limit_and_shows_what_was_seen():
    base = "schema_version: 1\nname: ours\ndescription: ours\nexpect:\n"
    entry = f"  {ALL_REDUCE}: {{at_least: {{share_of_ceiling: 0.9}}, at: 8GiB, unit: GB/s, source: a test}}\n"
    verdict = judged(parse(base + entry, "ours.yaml"), 350, 4)
    assert (verdict.outcome, verdict.observed) == (Outcome.NO_LIMIT, "350 GB/s (8GiB)")
    assert "the ceiling needs machine.gpus_per_node" in str(verdict.cause)


def test_a_share_without_the_facts_of_the_machine_is_refused_before_anything_runs(tmp_path):
    path = tmp_path / "ours.yaml"
    path.write_text("schema_version: 1\nname: ours\ndescription: ours\nextends: gpu-nodes\n")
    with pytest.raises(FileError, match=r"ours.yaml: expect.sweep.inside.busbw: .* needs machine.gpus_per_node"):
        load(str(path))
