"""Pairs inside and between racks or switches: each is compared with its kind, and no healthy node is accused."""

import math
import random
from collections.abc import Mapping

import nvml
import pytest
from bringup.domains import pair_kinds, pairs
from bringup.domains.next_round import next_round
from bringup.kernel.facts.parser_result import Parsed
from bringup.kernel.plan.rounds import ROUND, Pair, link_name
from bringup.readers import slurm
from loops import for_each
from nvml_for_tests import driver_of

NODES = [f"n{number}" for number in range(36)]
RACK = {node: f"rack{number // 18}" for number, node in enumerate(NODES)}
KNOWN = {node: (rack, "all") for node, rack in RACK.items()}
LINK_FLOOR, NODE_FLOOR = 0.7, 0.8  # of `generic`


def measured(inside: float, between: float, sick: Mapping[str, float]) -> Parsed:
    """All rounds that the phase would measure, with one number for both directions, as all_reduce gives it. sick: node
    -> the share of its speed that is left."""
    chance, parsed, done = random.Random(1), Parsed(), list[dict[Pair, float]]()
    while chosen := next_round(NODES, done):
        done.append({})
        for a, b in chosen:
            rate = inside if RACK[a] == RACK[b] else between
            least = min(rate, *(inside * sick.get(node, 1.0) for node in (a, b)))
            speed = least * math.exp(chance.gauss(0, 0.01))
            parsed.saw(ROUND, link_name((a, b)), len(done), "count", "e")
            for source, target in ((a, b), (b, a)):
                done[-1][source, target] = speed
                parsed.saw(pairs.BANDWIDTH, f"{source}->{target}", speed, "GB/s", "e")
                parsed.observations[-1] = parsed.observations[-1].model_copy(update={"round": len(done)})
    return parsed


def below(parsed: Parsed, places: pair_kinds.Places) -> tuple[set[str], set[str], dict[str, float]]:
    """Nodes and links below their floors, and the slowest pairs."""
    derived = pairs.derive(parsed.observations, NODES, places).observations
    shares = {(each.quantity, each.subject): each.value for each in derived if isinstance(each.value, float)}
    return (
        {subject for (gate, subject), share in shares.items() if gate == "nccl.pair.node" and share < NODE_FLOOR},
        {subject for (gate, subject), share in shares.items() if gate == "nccl.pair.link" and share < LINK_FLOOR},
        {gate: round(share) for (gate, _), share in shares.items() if gate.startswith("nccl.pair.slowest")},
    )


@for_each(*((*speeds, places) for speeds in ((700.0, 190.0), (440.0, 320.0), (440.0, 230.0)) for places in (KNOWN, {})))
def test_two_healthy_racks_that_less_joins_accuse_no_node_and_no_link(inside, between, places):
    """Four healthy nodes were named, and left out of the run: most of their partners were in the other rack."""
    nodes, links, slowest = below(measured(inside, between, {}), places)
    assert (nodes, links) == (set(), set())
    if places:
        assert slowest["nccl.pair.slowest"] > 0.9 * inside
        assert 0.9 * between < slowest["nccl.pair.slowest.between"] < 1.1 * between


@for_each("n3", "n20")
def test_a_sick_node_is_named_in_a_rack_as_on_one_switch(sick):
    assert below(measured(700.0, 190.0, {sick: 0.2}), KNOWN)[0] == {sick}
    assert below(measured(700.0, 190.0, {sick: 0.2}), {})[0] == {sick}
    assert below(measured(400.0, 400.0, {sick: 0.5}), KNOWN)[0] == {sick}


def test_near_pairs_that_are_slower_than_distant_ones_are_not_usual():
    speeds = {("a", "b"): 1.0, ("c", "d"): 10.0, ("a", "c"): 10.0, ("b", "d"): 10.0}
    of = pair_kinds.Kinds(speeds, {"a": ("l",), "b": ("l",), "c": ("m",), "d": ("m",)})
    assert (of.usual(("a", "b")), of.usual(("a", "c"))) == (10.0, 10.0)
    alone = pair_kinds.Kinds({("a", "b"): 1.0, ("a", "c"): 10.0}, {"a": ("l",), "b": ("l",), "c": ("m",)})
    assert alone.usual(("a", "b")) == 10.0


def test_the_lowest_switch_of_both_nodes_and_the_nvlink_cluster_make_the_kind():
    tree = "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=a,b\nSwitchName=s1 Level=0 LinkSpeed=1 Nodes=c\n"
    tree += "SwitchName=s3 Level=0 LinkSpeed=1 Nodes=d\nSwitchName=s2 Level=1 LinkSpeed=1 Nodes=a,b,c Switches=s[0-1]\n"
    tree += "SwitchName=s4 Level=2 LinkSpeed=1 Nodes=a,b,c,d Switches=s2,s3\n"
    observed = slurm.topology(tree, "t", ["a", "b", "c", "d"])
    speeds = dict.fromkeys([("a", "b"), ("a", "c"), ("a", "d")], 1.0)
    assert list(pair_kinds.Kinds(speeds, pair_kinds.places(observed.observations)).levels.values()) == [0, 1, 2]
    observed.saw(pair_kinds.NVLINK_CLUSTER, "a", "f00.1", "text", "e")
    observed.saw(pair_kinds.NVLINK_CLUSTER, "c", "f00.1", "text", "e")
    kinds = pair_kinds.Kinds(speeds, pair_kinds.places(observed.observations))
    assert kinds.levels["a", "c"] < kinds.levels["a", "b"] < kinds.levels["a", "d"]


def test_gpus_of_one_nvlink_cluster_say_so_and_others_say_nothing():
    with driver_of("gpu0.fabric_cluster=17") as driver:
        first, second = (driver.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
        assert nvml._nvlink_cluster(driver, first) == f"{'11' * 16}.0"
        with pytest.raises(nvml.NothingToAsk):
            nvml._nvlink_cluster(driver, second)
