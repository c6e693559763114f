"""Adaptive rounds of pairs: which pairs, what is named, and how often that is wrong (simulated, fixed seeds)."""

import importlib.util
import math
import random
import sys
from pathlib import Path

import pytest
from bringup import judge
from bringup.derive import localise
from bringup.derive import pairs as pairwise
from bringup.derive.next_round import most_rounds, next_round
from bringup.evidence import pair_rounds
from bringup.plan import profile
from bringup.records import Kind, Outcome
from factory import a_run
from loops import for_each
from runs_for_tests import as_read
from showing import shows_failing
from tiers import FEWER

ROOT = Path(__file__).resolve().parents[3]


def benchmark():
    spec = importlib.util.spec_from_file_location("localise_pairs", ROOT / "validation/benchmarks/localise_pairs.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # a dataclass looks there for its own module
    spec.loader.exec_module(module)
    return module


simulated = benchmark()


def fleet(count):
    return [f"n{number:02}" for number in range(count)]


def measured(nodes, speed, noise=0.01, one_way=False, seed=1):
    return simulated.measured_rounds(random.Random(seed), nodes, speed, noise, one_way)


def slow_node(name, loss=0.5, way="both"):
    def speed(source, target):
        slow = (way != "in" and source == name) or (way != "out" and target == name)
        return 1 - loss if slow else 1.0

    return speed


def partners(rounds):
    partners_of = {}
    for pairs in rounds:
        for a, b in pairs:
            partners_of.setdefault(a, set()).add(b)
    return partners_of


def test_the_first_round_is_of_neighbours_and_of_an_odd_number_the_last_one_is_idle():
    assert next_round(fleet(4), []) == [("n00", "n01"), ("n02", "n03")]
    assert next_round(fleet(5), []) == [("n00", "n01"), ("n02", "n03")]


@for_each("count", [3, 9, 10, 17, 33, 64])
def test_a_healthy_fleet_has_two_rounds_and_an_odd_one_three_in_which_all_have_two_partners(count):
    nodes = fleet(count)
    rounds = measured(nodes, lambda source, target: 1.0)
    assert len(rounds) == 2 + count % 2
    assert {len(partners(rounds)[node]) >= 2 for node in nodes} == {True}
    for pairs in rounds:
        # both directions of each pair: no node twice
        assert len({node for pair in pairs for node in pair}) == len(pairs)
    if count % 2:
        assert any(nodes[-1] in pair for pair in rounds[1])  # the idle one is paired in the next round


def test_the_nodes_of_a_slow_pair_are_paired_with_nodes_of_the_fastest():
    nodes = fleet(12)
    first = {}
    for number, (a, b) in enumerate(next_round(nodes, [])):
        first[a, b] = first[b, a] = {2: 0.5, 4: 1.05}.get(number, 1.0 + number / 1000)
    second = next_round(nodes, [first])
    assert {frozenset(pair) for pair in second if {"n04", "n05"} & set(pair)} == {
        frozenset(("n04", "n08")),
        frozenset(("n05", "n09")),
    }


@for_each("count", [9, 16, 33, 100])
@for_each("way", ["both", "out", "in"])
def test_a_slow_node_is_named_after_two_rounds_with_its_direction(count, way):
    nodes = fleet(count)
    rounds = measured(nodes, slow_node("n05", way=way))
    assert len(rounds) == 2 + count % 2
    culprits = localise.culprits(nodes, rounds)
    assert [(culprit.names, culprit.way) for culprit in culprits.nodes] == [(("n05",), way)]
    assert (culprits.links, culprits.undecided) == ([], [])
    assert culprits.nodes[0].loss == pytest.approx(0.5, abs=0.05)


def test_a_node_that_answers_nobody_is_named_and_so_is_one_that_is_idle_first():
    for name in ("n02", "n10"):
        nodes = fleet(11)
        rounds = measured(nodes, lambda source, target, name=name: 0.0 if name in (source, target) else 1.0)
        assert [culprit.names for culprit in localise.culprits(nodes, rounds).nodes] == [(name,)]


def test_of_two_slow_nodes_that_are_neighbours_both_are_named():
    nodes = fleet(16)
    rounds = measured(nodes, lambda source, target: 0.5 if {source, target} & {"n04", "n05"} else 1.0, one_way=True)
    assert {culprit.names[0] for culprit in localise.culprits(nodes, rounds).nodes} == {"n04", "n05"}


@pytest.mark.parametrize("count", [9, 16, 64])
def test_a_slow_path_is_told_from_its_ends_in_three_rounds(count):
    nodes = fleet(count)
    rounds = measured(nodes, lambda source, target: 0.4 if (source, target) == ("n04", "n05") else 1.0)
    assert len(rounds) == 3
    culprits = localise.culprits(nodes, rounds)
    assert [(culprit.kind, culprit.names, culprit.way) for culprit in culprits.links] == [
        ("path", ("n04", "n05"), "out")
    ]
    assert culprits.nodes == []


def test_a_path_that_was_slow_once_and_is_fast_again_is_not_named():
    nodes, rounds = fleet(16), []
    while pairs := next_round(nodes, rounds):
        slow = 0.4 if not rounds else 1.0
        rounds.append({way: slow if "n04" in way else 1.0 for a, b in pairs for way in ((a, b), (b, a))})
    assert localise.culprits(nodes, rounds).links == []
    assert localise.culprits(nodes, rounds).nodes == []


def test_the_way_out_of_a_block_is_named_and_none_of_its_nodes():
    nodes = fleet(64)
    block = set(nodes[16:24])
    rounds = measured(nodes, lambda source, target: 0.6 if len(block & {source, target}) == 1 else 1.0, one_way=True)
    culprits = localise.culprits(nodes, rounds)
    assert [(culprit.kind, culprit.names) for culprit in culprits.links] == [("block", tuple(nodes[16:24]))]
    assert culprits.nodes == []
    assert len(rounds) <= most_rounds(nodes)
    assert "the way out of n16 to n23 (8 nodes) is at 0.6" in "; ".join(localise.words(culprits, nodes))


def test_a_slow_link_between_two_halves_is_found_by_distance():
    nodes = fleet(64)
    rounds = measured(nodes, lambda source, target: 0.7 if (source < "n32") != (target < "n32") else 1.0, one_way=True)
    culprits = localise.culprits(nodes, rounds)
    assert culprits.distance is not None
    assert (culprits.distance.is_found, culprits.distance.slow_from) == (True, 32)
    assert (culprits.nodes, culprits.links) == ([], [])
    assert len(rounds) <= most_rounds(nodes)


def test_two_nodes_have_one_round_and_nobody_can_say_which_of_them_it_is():
    nodes = fleet(2)
    rounds = measured(nodes, lambda source, target: 1.0)
    assert len(rounds) == 1
    assert next_round(nodes, rounds) == []
    culprits = localise.culprits(nodes, rounds)
    assert (culprits.nodes, culprits.links) == ([], [])


def test_a_fleet_whose_majority_is_slow_is_not_called_healthy():
    nodes = fleet(16)
    slow = set(nodes[:9])
    rounds = measured(nodes, lambda source, target: 0.5 if slow & {source, target} else 1.0, one_way=True)
    culprits = localise.culprits(nodes, rounds)
    assert culprits.nodes
    assert {culprit.names[0] for culprit in culprits.nodes} <= slow


@shows_failing("nccl.pair.slowest")
def test_a_fleet_that_is_slow_as_a_whole_is_usual_to_itself_and_fails_the_floor_of_the_profile():
    nodes = fleet(16)
    rounds = measured(nodes, lambda source, target: 0.02)
    assert localise.culprits(nodes, rounds).nodes == []
    judged = judge.judge(a_run("nccl_pairwise", nodes, gpus=1), profile.load("local-cpu"), evidence(nodes, rounds))
    assert [v.outcome for v in judged.verdicts if v.gate == "nccl.pair.slowest"] == [Outcome.FAIL]


def test_a_noisy_run_says_what_loss_it_cannot_see():
    steady, noisy = (
        localise.culprits(fleet(64), measured(fleet(64), lambda source, target: 1.0, noise)) for noise in (0.01, 0.2)
    )
    assert noisy.noise > 8 * steady.noise
    assert localise.words(steady, fleet(64))[-1].endswith("a node that loses 5% or more")
    least = int(localise.words(noisy, fleet(64))[-1].split()[-3].rstrip("%"))
    assert 40 < least < 70


def evidence(nodes, rounds, *, lost=frozenset()):
    """As the phase leaves it: rounds.txt, and what each pair measured but for those of `lost`."""
    text = "".join(" ".join(f"{a},{b}" for a, b in pairs if a < b) + "\n" for pairs in rounds)
    parsed = pair_rounds.parse(text, "raw/rounds.txt")
    for number, speeds in enumerate(rounds, start=1):
        for (a, b), speed in speeds.items():
            if frozenset((a, b)) in lost:
                continue
            for repeat in (1, 2):
                where = f"raw/pairs-{repeat}-{number}.jsonl:1"
                parsed.saw(pairwise.BANDWIDTH, f"{a}->{b}", speed, "GB/s", where)
                if a < b:
                    parsed.saw(pairwise.LATENCY, f"{a}--{b}", 50.0, "us", where)
    parsed.add(pairwise.derive(as_read(parsed).observations, nodes))
    return parsed


def test_what_was_played_is_read_back_from_the_evidence_and_a_pair_without_an_answer_is_0():
    nodes = fleet(10)
    rounds = measured(nodes, lambda source, target: 1.0)
    assert pairwise.measured_rounds(evidence(nodes, rounds).observations) == rounds
    silent = {pair: 0.0 if set(pair) == {"n00", "n01"} else speed for pair, speed in rounds[0].items()}
    assert pairwise.measured_rounds(evidence(nodes, rounds, lost={frozenset(("n00", "n01"))}).observations)[0] == silent


@shows_failing("nccl.pair.node", "nccl.pair.link")
def test_the_gates_name_a_slow_node_and_a_slow_link_that_only_a_chosen_round_met():
    nodes = fleet(16)
    run = a_run("nccl_pairwise", nodes, gpus=1, profile="generic")
    rounds = measured(nodes, slow_node("n05", 0.5))
    parsed = evidence(nodes, rounds)
    failed = {
        (v.gate, v.subject)
        for v in judge.judge(run, profile.load("generic"), parsed).verdicts
        if v.outcome is Outcome.FAIL
    }
    assert failed == {("nccl.pair.node", "n05")}
    assert any("n05 is at 0.5" in problem for problem in parsed.problems)
    a, b = next(pair for pair in measured(nodes, lambda source, target: 1.0)[1] if pair[0] < pair[1])
    rounds = measured(nodes, lambda source, target: 0.3 if {source, target} == {a, b} else 1.0)
    verdicts = judge.judge(run, profile.load("generic"), evidence(nodes, rounds)).verdicts
    failed = {(v.gate, v.subject) for v in verdicts if v.outcome is Outcome.FAIL}
    assert f"{a}--{b}" not in run.planned["nccl.pair.link"]
    assert failed == {("nccl.pair.link", f"{a}--{b}")}


def test_a_pair_of_a_chosen_round_of_which_nothing_arrived_is_incomplete():
    nodes = fleet(16)
    rounds = measured(nodes, lambda source, target: 1.0)
    a, b = next(pair for pair in rounds[1] if pair[0] < pair[1])
    run = a_run("nccl_pairwise", nodes, gpus=1, profile="generic")
    parsed = evidence(nodes, rounds, lost={frozenset((a, b))})
    verdicts = {(v.gate, v.subject): v for v in judge.judge(run, profile.load("generic"), parsed).verdicts}
    missing = verdicts["nccl.pair.link", f"{a}--{b}"]
    assert (missing.outcome, missing.kind) == (Outcome.INCOMPLETE, Kind.ABSENT)


def test_rounds_that_are_none_are_a_problem_and_plan_nothing():
    parsed = pair_rounds.parse("n0,n1 n2,n3\n\nn0\nn1,n2", "raw/rounds.txt")
    assert [observation.subject for observation in parsed.observations] == ["n0--n1", "n2--n3"]
    assert len(parsed.problems) == 2
    run = a_run("nccl_pairwise", fleet(9), gpus=1)
    other = pair_rounds.parse("x0,x1\n", "raw/rounds.txt")
    subjects = {v.subject for v in judge.judge(run, profile.load("local-cpu"), other).verdicts}
    assert "x0--x1" not in subjects


@for_each("seed", range(4 if FEWER else 20))
def test_whatever_was_measured_a_round_is_of_known_nodes_each_once_and_rounds_end(seed):
    chance = random.Random(seed)
    nodes = fleet(chance.randrange(1, 40))
    rounds = []
    while pairs := next_round(nodes, rounds):
        assert {node for pair in pairs for node in pair} <= set(nodes)
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs)
        speeds = {("foreign", "n00"): 5.0, ("foreign", "other"): 0.0}
        for a, b in pairs:
            for way in ((a, b), (b, a)):
                if chance.random() < 0.95:
                    speeds[way] = chance.choice([0.0, 1e-9, 1e9, *(chance.lognormvariate(0, 1) for _ in range(9))])
        rounds.append(speeds)
        assert len(rounds) <= most_rounds(nodes)
        assert next_round(nodes, rounds) == next_round(nodes, rounds)
        assert localise.words(localise.culprits(nodes, rounds), nodes)


RATES = [  # nodes, bad, loss, noise, trials, most missed, most falsely named, most rounds in the mean
    (16, 0, 0.0, 0.03, 60, 0.0, 0.05, 2.4),
    (16, 1, 0.1, 0.01, 40, 0.0, 0.05, 2.2),
    (16, 1, 0.3, 0.03, 40, 0.0, 0.05, 2.4),
    (16, 3, 0.3, 0.03, 40, 0.05, 0.1, 2.6),
    (16, 5, 0.6, 0.01, 40, 0.05, 0.1, 2.7),
    (64, 1, 0.1, 0.03, 20, 0.2, 0.1, 2.8),
    (64, 5, 0.3, 0.05, 15, 0.05, 0.1, 2.6),
]


@for_each(("count", "bad", "loss", "noise", "trials", "missed", "falsely", "rounds"), RATES)
def test_misses_false_names_and_rounds_stay_below_what_is_stated(
    count, bad, loss, noise, trials, missed, falsely, rounds
):
    outcomes = [simulated.slow_nodes(seed, count, bad, loss, noise) for seed in range(trials)]
    assert sum(outcome.missed for outcome in outcomes) <= missed * max(1, bad) * trials
    assert sum(outcome.falsely for outcome in outcomes) <= falsely * trials
    assert sum(outcome.rounds for outcome in outcomes) <= rounds * trials
    assert max(outcome.rounds for outcome in outcomes) <= 2 + math.log2(count)


@pytest.mark.parametrize(("kind", "trials"), [("path", 20), ("block", 10), ("halves", 10)])
def test_slow_links_are_found_within_the_rounds_that_are_stated(kind, trials):
    outcomes = [simulated.slow_link(seed, 64, kind, 0.3, 0.03) for seed in range(trials)]
    assert sum(outcome.missed for outcome in outcomes) <= 0.1 * trials
    assert max(outcome.rounds for outcome in outcomes) <= 2 + math.log2(64)
