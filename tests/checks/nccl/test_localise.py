"""Adaptive rounds of pairs: which pairs, what is named, and how often that is wrong (simulated, fixed seeds)."""

import math
import random

import localise_pairs as simulated
import pytest
from bringup.domains import localise
from bringup.domains import pairs as pairwise
from bringup.domains.next_round import most_rounds, next_round
from bringup.kernel import judge
from bringup.kernel.plan import profile
from bringup.kernel.records import Kind
from bringup.readers.scripts import rounds_of_pairs
from factory import a_run
from loops import for_each
from runs_for_tests import FAIL, OPEN, as_read, parsed_of
from showing import shows_failing
from tiers import FEWER


def fleet(count):
    return [f"n{number:02}" for number in range(count)]


def alike(source, target):
    return 1.0


def measured(nodes, speed=alike, noise=0.01, one_way=False):
    return simulated.measured_rounds(random.Random(1), nodes, speed, noise, one_way)


def slow_node(name, loss=0.5, way="both"):
    def speed(source, target):
        slow = (way != "in" and source == name) or (way != "out" and target == name)
        return 1 - loss if slow else 1.0

    return speed


def touching(slow, speed):
    """Slow where one of these nodes is an end."""
    return lambda source, target: speed if {source, target} & set(slow) else 1.0


def named(nodes, rounds):
    """(what kind, its nodes, its way) of all that is accused."""
    culprits = localise.culprits(nodes, rounds)
    assert culprits.undecided == []
    return [(culprit.kind, culprit.names, culprit.way) for culprit in (*culprits.nodes, *culprits.links)]


def test_the_first_round_is_of_neighbours_and_of_an_odd_number_the_last_one_is_idle():
    assert next_round(fleet(4), []) == next_round(fleet(5), []) == [("n00", "n01"), ("n02", "n03")]


@for_each(2, 3, 9, 10, 17, 33, 64)
def test_a_healthy_fleet_has_two_rounds_and_an_odd_one_three_in_which_all_have_two_partners(count):
    nodes = fleet(count)
    rounds = measured(nodes)
    assert len(rounds) == (2 + count % 2 if count > 2 else 1)
    assert next_round(nodes, rounds) == []
    assert named(nodes, rounds) == []
    for node in nodes:
        assert len({pair for pairs in rounds for pair in pairs if pair[0] == node}) >= min(2, count - 1)
    for pairs in rounds:
        # both directions of each pair: no node twice
        assert len({node for pair in pairs for node in pair}) == len(pairs)
    if count % 2:
        assert any(nodes[-1] in pair for pair in rounds[1])  # the idle one is paired in the next round


def test_the_nodes_of_a_slow_pair_are_paired_with_nodes_of_the_fastest():
    first = {}
    for number, (a, b) in enumerate(next_round(fleet(12), [])):
        first[a, b] = first[b, a] = {2: 0.5, 4: 1.05}.get(number, 1.0 + number / 1000)
    second = {frozenset(pair) for pair in next_round(fleet(12), [first]) if {"n04", "n05"} & set(pair)}
    assert second == {frozenset(("n04", "n08")), frozenset(("n05", "n09"))}


@for_each(9, 16, 33, 100)
@for_each("both", "out", "in")
def test_a_slow_node_is_named_after_two_rounds_with_its_direction(count, way):
    rounds = measured(fleet(count), slow_node("n05", way=way))
    assert len(rounds) == 2 + count % 2
    assert named(fleet(count), rounds) == [("node", ("n05",), way)]
    assert localise.culprits(fleet(count), rounds).nodes[0].loss == pytest.approx(0.5, abs=0.05)


@for_each(
    # nobody is answered, also where the node is idle first
    *((11, touching([name], 0.0), None, [("node", (name,), "both")]) for name in ("n02", "n10")),
    # a slow path is told from its ends
    *(
        (count, lambda *way: 0.4 if way == ("n04", "n05") else 1.0, 3, [("path", ("n04", "n05"), "out")])
        for count in (9, 16, 64)
    ),
    (16, lambda *_: 0.02, None, []),  # all of it is slow, and usual to itself
    ids=lambda value: str(value)[:20],
)
def test_a_node_or_a_path_is_named_alone(count, speed, rounds, culprits):
    played = measured(fleet(count), speed)
    assert rounds is None or len(played) == rounds
    assert named(fleet(count), played) == culprits


def test_of_two_slow_nodes_that_are_neighbours_both_are_named_and_a_slow_majority_is_not_healthy():
    nodes, two = fleet(16), ["n04", "n05"]
    assert {names[0] for _, names, _ in named(nodes, measured(nodes, touching(two, 0.5), one_way=True))} == {*two}
    culprits = localise.culprits(nodes, measured(nodes, touching(nodes[:9], 0.5), one_way=True))
    assert culprits.nodes
    assert {culprit.names[0] for culprit in culprits.nodes} <= set(nodes[:9])


def test_a_path_that_was_slow_once_and_is_fast_again_is_not_named():
    nodes, rounds = fleet(16), []
    while pairs := next_round(nodes, rounds):
        slow = 0.4 if not rounds else 1.0
        rounds.append({way: slow if "n04" in way else 1.0 for a, b in pairs for way in ((a, b), (b, a))})
    assert named(nodes, rounds) == []


def test_the_way_out_of_a_block_is_named_and_none_of_its_nodes_and_a_slow_half_is_found_by_distance():
    nodes = fleet(64)
    block = set(nodes[16:24])
    rounds = measured(nodes, lambda *way: 0.6 if len(block & set(way)) == 1 else 1.0, one_way=True)
    culprits = localise.culprits(nodes, rounds)
    assert [(culprit.kind, culprit.names) for culprit in culprits.links] == [("block", tuple(nodes[16:24]))]
    assert culprits.nodes == []
    assert "the way out of n16 to n23 (8 nodes) is at 0.6" in "; ".join(localise.words(culprits, nodes))
    halves = measured(nodes, lambda source, target: 0.7 if (source < "n32") != (target < "n32") else 1.0, one_way=True)
    culprits = localise.culprits(nodes, halves)
    assert (culprits.distance.is_found, culprits.distance.slow_from) == (True, 32)
    assert (culprits.nodes, culprits.links) == ([], [])
    assert max(len(rounds), len(halves)) <= most_rounds(nodes)


def test_a_noisy_run_says_what_loss_it_cannot_see():
    nodes = fleet(64)
    steady, noisy = (localise.culprits(nodes, measured(nodes, noise=noise)) for noise in (0.01, 0.2))
    assert noisy.noise > 8 * steady.noise
    assert localise.words(steady, nodes)[-1].endswith("a node that loses 5% or more")
    assert 40 < int(localise.words(noisy, nodes)[-1].split()[-3].rstrip("%")) < 70


# ---- the evidence of the phase, and its verdicts


def evidence(nodes, rounds, lost=()):
    """As the phase leaves it: rounds.txt, and what each pair measured but for this one."""
    text = "".join(" ".join(f"{a},{b}" for a, b in pairs if a < b) + "\n" for pairs in rounds)
    facts = []
    for number, speeds in enumerate(rounds, start=1):
        for (a, b), speed in speeds.items():
            for where in [f"raw/pairs-{repeat}-{number}.jsonl:1" for repeat in (1, 2) if {a, b} != set(lost)]:
                facts.append((pairwise.BANDWIDTH, f"{a}->{b}", speed, None, where))
                facts += [(pairwise.LATENCY, f"{a}--{b}", 50.0, None, where)] if a < b else []
    parsed = rounds_of_pairs(text, "raw/rounds.txt")
    parsed.add(parsed_of(facts))
    parsed.add(pairwise.derive(as_read(parsed).observations, nodes))
    return parsed


def test_what_was_played_is_read_back_from_the_evidence_and_a_pair_without_an_answer_is_0():
    nodes = fleet(10)
    rounds = measured(nodes)
    assert pairwise.measured_rounds(evidence(nodes, rounds).observations) == rounds
    silent = {pair: 0.0 if set(pair) == {"n00", "n01"} else speed for pair, speed in rounds[0].items()}
    assert pairwise.measured_rounds(evidence(nodes, rounds, ("n00", "n01")).observations)[0] == silent


def judged(parsed, profile_name="generic", nodes=16):
    """(gate, subject) -> verdict."""
    run = a_run("nccl_pairwise", fleet(nodes), gpus=1, profile=profile_name)
    return {(v.gate, v.subject): v for v in judge.judge(run, profile.load(profile_name), parsed).verdicts}


def failed(parsed, profile_name="generic"):
    return {which for which, verdict in judged(parsed, profile_name).items() if verdict.outcome is FAIL}


@shows_failing("nccl.pair.node", "nccl.pair.link", "nccl.pair.slowest")
def test_the_gates_name_a_slow_node_and_a_slow_link_that_only_a_chosen_round_met():
    nodes = fleet(16)
    parsed = evidence(nodes, measured(nodes, slow_node("n05")))
    assert failed(parsed) == {("nccl.pair.node", "n05")}
    assert any("n05 is at 0.5" in problem for problem in parsed.problems)
    healthy = measured(nodes)
    a, b = next(pair for pair in healthy[1] if pair[0] < pair[1])
    link = ("nccl.pair.link", f"{a}--{b}")
    rounds = measured(nodes, lambda *way: 0.3 if {*way} == {a, b} else 1.0)
    assert link[1] not in a_run("nccl_pairwise", nodes, gpus=1).planned["nccl.pair.link"]
    assert failed(evidence(nodes, rounds)) == {link}
    missing = judged(evidence(nodes, healthy, (a, b)))[link]  # nothing arrived of it
    assert (missing.outcome, missing.kind) == (OPEN, Kind.ABSENT)
    all_slow = evidence(nodes, measured(nodes, lambda *_: 0.02))  # the floor of the profile
    assert ("nccl.pair.slowest", "job") in failed(all_slow, "local-cpu")


def test_rounds_that_are_none_are_a_problem_and_plan_nothing():
    parsed = rounds_of_pairs("n0,n1 n2,n3\n\nn0\nn1,n2", "raw/rounds.txt")
    assert [observation.subject for observation in parsed.observations] == ["n0--n1", "n2--n3"]
    assert len(parsed.problems) == 2
    other = judged(rounds_of_pairs("x0,x1\n", "raw/rounds.txt"), "local-cpu", 9)
    assert "x0--x1" not in {subject for _, subject in other}


@for_each(*range(4 if FEWER else 20))
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
    (16, 5, 0.6, 0.01, 40, 0.05, 0.1, 3.8),
    (64, 1, 0.1, 0.03, 20, 0.2, 0.1, 2.8),
    (64, 5, 0.3, 0.05, 15, 0.05, 0.1, 2.6),
]


@for_each(*RATES)
def test_misses_false_names_and_rounds_are_as_stated(count, bad, loss, noise, trials, missed, falsely, most):
    outcomes = [simulated.slow_nodes(seed, count, bad, loss, noise) for seed in range(trials)]
    assert sum(outcome.missed for outcome in outcomes) <= missed * max(1, bad) * trials
    assert sum(outcome.falsely for outcome in outcomes) <= falsely * trials
    assert sum(outcome.rounds for outcome in outcomes) <= most * trials
    assert max(outcome.rounds for outcome in outcomes) <= 2 + math.log2(count)


@for_each(("path", 20), ("block", 10), ("halves", 10))
def test_slow_links_are_found_within_the_rounds_that_are_stated(kind, trials):
    outcomes = [simulated.slow_link(seed, 64, kind, 0.3, 0.03) for seed in range(trials)]
    assert sum(outcome.missed for outcome in outcomes) <= 0.1 * trials
    assert max(outcome.rounds for outcome in outcomes) <= 2 + math.log2(64)
