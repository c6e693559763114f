"""Rounds of pairs, and which node or which link is to blame for slow ones."""

from itertools import combinations, permutations

import pytest
from bringup import judge
from bringup.cli import main
from bringup.derive import pair_topology
from bringup.derive import pairs as pairwise
from bringup.evidence import curve, slurm
from bringup.evidence.parsed import Parsed, Seen
from bringup.plan import planned, profile
from bringup.plan import rounds as tournament
from bringup.plan.catalogue import DRILLS
from bringup.records import Outcome
from factory import a_run
from loops import for_each
from runs_for_tests import about, as_read, values

FOUR = ["n0", "n1", "n2", "n3"]


@for_each("count", [2, 3, 4, 5, 8, 9])
def test_all_rounds_meet_every_pair_once_and_no_node_twice_in_a_round(count):
    nodes = [f"n{number}" for number in range(count)]
    rounds = tournament.rounds(nodes, tournament.all_rounds(nodes))
    assert sorted(pair for pairs in rounds for pair in pairs) == sorted(combinations(nodes, 2))
    for pairs in rounds:
        assert len({node for pair in pairs for node in pair}) == 2 * len(pairs)


def test_up_to_8_nodes_every_pair_is_planned_and_above_that_the_first_round():
    nodes = [f"n{number:04d}" for number in range(1024)]
    assert sum(map(len, tournament.in_advance(nodes[:8]))) == 28
    assert tournament.in_advance(nodes[:9]) == [[(nodes[place], nodes[place + 1]) for place in range(0, 8, 2)]]
    assert [len(pairs) for pairs in tournament.in_advance(nodes)] == [512]
    assert len(tournament.in_advance(nodes, 10)) == 10
    assert len(tournament.in_advance(nodes[:16], tournament.all_rounds(nodes[:16]))) == 15


def test_pairs_that_are_measured_again_are_put_into_rounds():
    assert tournament.in_rounds([("a", "b"), ("a", "c"), ("c", "d")]) == [[("a", "b"), ("c", "d")], [("a", "c")]]


def fleet(
    nodes: list[str],
    *,
    slow_node: str = "",
    slow_pair: tuple[str, str] = ("", ""),
    lossy: str = "",
    value: float = 0.01,
) -> Parsed:
    """Every pair measured; faults are in one direction: out of the node, from the first to the second."""
    parsed = Parsed()
    for first, second in combinations(nodes, 2):
        for source, target in ((first, second), (second, first)):
            bad = source == slow_node or (source, target) == slow_pair
            parsed.saw(pairwise.BANDWIDTH, f"{source}->{target}", value if bad else 1.0, "GB/s", "e")
        parsed.saw(pairwise.LATENCY, f"{first}--{second}", 250_000.0 if lossy in (first, second) else 50.0, "us", "e")
    return parsed


def scores(parsed: Parsed, quantity: str, nodes: list[str] = FOUR) -> dict[str, object]:
    return values(pairwise.derive(parsed.observations, nodes), quantity)


@pytest.mark.parametrize("nodes", [FOUR[:3], FOUR, [f"n{number}" for number in range(8)]])
def test_a_slow_node_is_named_and_none_of_its_links(nodes):
    parsed = fleet(nodes, slow_node="n1")
    by_node = scores(parsed, "nccl.pair.node", nodes)
    assert by_node.pop("n1") == 0.01
    assert set(by_node.values()) == {1.0}
    assert set(scores(parsed, "nccl.pair.link", nodes).values()) == {1.0}


TREE = "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[0-1]\nSwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[2-3,7]\n"
TREE += "SwitchName=s2 Level=1 LinkSpeed=1 Nodes=n[0-3,7] Switches=s[0-1]\n"
BLOCKS = "BlockName=b0 BlockIndex=0 Nodes=n[0-1] BlockSize=2\nBlockName=b1 BlockIndex=1 Nodes=n[2-3] BlockSize=2\n"
BLOCKS += "AggregatedBlock=b[0-1] BlockIndex=2 Nodes=n[0-3] BlockSize=4\n"


@pytest.mark.parametrize(
    ("topology", "share", "words"),
    [
        (TREE, 0.01, "n0 with those under s0: 0.01 GB/s, under s1: 1 GB/s"),
        (BLOCKS, 0.01, "n0 with those under b0: 0.01 GB/s, under b1: 1 GB/s"),
        (TREE.replace("n[0-1]", "n[0,4]").replace("2-3", "1-3"), 1.0, "n1 with those under s1: 1 GB/s"),
        ("SwitchName=s0 Level=0 Nodes=n0\n", None, "of the measured pairs 0 are under one switch and 12 are not"),
        ("SwitchName=s0 Level=0 Nodes=n[0-3]\n", None, "of the measured pairs 12 are under one switch and 0 are not"),
        ("", None, "of the measured pairs 0 are under one switch"),
    ],
)
def test_pairs_that_are_slow_under_one_switch_contradict_the_topology_of_slurm(topology, share, words):
    """n1 sends slowly to n0 alone."""
    parsed = fleet(FOUR, slow_pair=("n1", "n0"))
    parsed.add(slurm.topology(topology, "raw/scontrol-topology.txt", FOUR))
    (topology_share,) = pair_topology.derive(Seen(parsed.observations)).observations
    assert (topology_share.value, parsed.problems) == (share, [])
    assert words in (topology_share.why or "")


def test_pairs_that_carried_nothing_say_nothing_of_the_topology():
    parsed = Parsed()
    for source, target in permutations(FOUR, 2):
        parsed.saw(pairwise.BANDWIDTH, f"{source}->{target}", 0.0, "GB/s", "e")
    parsed.add(slurm.topology(TREE, "raw/scontrol-topology.txt", FOUR))
    assert pair_topology.derive(Seen(parsed.observations)).observations == []


@pytest.mark.parametrize(
    ("leaves", "is_asked"),
    [
        (None, True),  # Slurm gave no answer: the gate stays planned, and is incomplete
        ({}, False),
        (dict.fromkeys(FOUR, "s0"), False),
        ({node: node for node in FOUR}, False),
        ({"n0": "s0", "n1": "s0", "n2": "s1", "n3": "s1"}, True),
    ],
)
def test_switches_are_compared_where_slurm_divides_the_nodes(leaves, is_asked):
    left_out = [entry.gate for entry in planned.without_switches("nccl_pairwise", leaves)]
    assert left_out == ([] if is_asked else ["nccl.pair.topology"])


@pytest.mark.parametrize("value", [0.01, 0.0])
@pytest.mark.parametrize("nodes", [FOUR[:3], FOUR])
def test_a_slow_or_silent_link_is_named_and_neither_of_its_nodes(nodes, value):
    parsed = fleet(nodes, slow_pair=("n1", "n0"), value=value)
    links = scores(parsed, "nccl.pair.link", nodes)
    assert links.pop("n0--n1") == value
    assert set(links.values()) == {1.0}
    assert set(scores(parsed, "nccl.pair.node", nodes).values()) == {1.0}


def test_a_node_that_nobody_reaches_is_named():
    parsed = Parsed()
    for first, second in combinations(FOUR, 2):
        for source, target in ((first, second), (second, first)):
            parsed.saw(pairwise.BANDWIDTH, f"{source}->{target}", 0.0 if "n2" in (first, second) else 1.0, "GB/s", "e")
    assert scores(parsed, "nccl.pair.node") == {"n0": 1.0, "n1": 1.0, "n2": 0.0, "n3": 1.0}
    assert set(scores(parsed, "nccl.pair.link").values()) == {1.0}


@pytest.mark.parametrize(("times", "value"), [(1, None), (2, 0.2)])
def test_a_node_with_a_silent_link_is_not_slow_by_one_sample_of_another_one(times, value):
    """n0 and n1 do not reach each other; n1 and n2 shared a moment of load, and were not measured again."""
    parsed = Parsed()
    for first, second in combinations(FOUR, 2):
        speed = {("n0", "n1"): 0.0, ("n1", "n2"): 0.2}.get((first, second), 1.0)
        for source, target in ((first, second), (second, first)):
            for _ in range(times):
                parsed.saw(pairwise.BANDWIDTH, f"{source}->{target}", speed, "GB/s", "e")
    assert scores(parsed, "nccl.pair.node")["n1"] == value
    assert set(scores(parsed, "nccl.pair.node").values()) - {value} == {1.0}
    assert scores(parsed, "nccl.pair.link")["n0--n1"] == 0.0


def test_two_nodes_have_a_link_and_no_culprit():
    parsed = fleet(FOUR[:2], slow_node="n1")
    assert scores(parsed, "nccl.pair.node") == {}
    assert scores(parsed, "nccl.pair.link") == {"n0--n1": 0.01}
    assert scores(parsed, "nccl.pair.slowest") == {"job": 0.01}


def test_a_lossy_node_explains_its_links():
    parsed = fleet(FOUR, lossy="n1")
    assert scores(parsed, "nccl.pair.node.latency")["n1"] == 250_000
    assert scores(parsed, "nccl.pair.node.latency")["n0"] == 50
    assert set(scores(parsed, "nccl.pair.link.latency").values()) == {0.0}


def test_the_best_of_repeated_measurements_counts_and_all_are_shown():
    parsed = fleet(FOUR, slow_pair=("n1", "n0"))
    parsed.saw(pairwise.BANDWIDTH, "n1->n0", 0.9, "GB/s", "later")
    link = next(
        observation
        for observation in pairwise.derive(parsed.observations, FOUR).observations
        if (observation.quantity, observation.subject) == ("nccl.pair.link", "n0--n1")
    )
    assert (link.value, link.evidence) == (0.9, "later")
    assert "0.01, 0.9" in str(link.why)


def repeated(*speeds: float, nodes: list[str] = FOUR, direction: str = "n1->n0") -> Parsed:
    """A fleet whose every direction was measured that often at 1 GB/s, and this one at these speeds."""
    parsed = Parsed()
    for speed in speeds:
        for observation in fleet(nodes).observations:
            parsed.observations.append(
                observation.model_copy(update={"value": speed}) if observation.subject == direction else observation
            )
    return parsed


def warned(parsed: Parsed) -> dict[str, str]:
    """Link -> what is said of it, of the links that warn; links are judged as on an unknown GPU cluster."""
    run = a_run("nccl_pairwise", FOUR, gpus=1, profile="generic")
    parsed.add(pairwise.derive(parsed.observations, FOUR))
    verdicts = about("nccl.pair.link.steady", parsed, run).values()
    assert len(verdicts) == 6
    return {v.subject: f"{v.outcome}: {v.observed} {v.cause}" for v in verdicts if v.outcome is not Outcome.PASS}


@pytest.mark.parametrize("speeds", [(0.05, 1.0), (1.0, 0.05), (1.0, 1.0, 0.05), (0.0, 1.0)])
def test_a_link_that_is_slow_at_times_is_a_warning_that_names_it_though_its_best_is_good(speeds):
    parsed = repeated(*speeds)
    assert scores(parsed, "nccl.pair.link")["n0--n1"] == 1.0
    warnings = warned(parsed)
    assert list(warnings) == ["n0--n1"]
    assert warnings["n0--n1"].startswith("warn: ")
    assert f"n1->n0 at {', '.join(f'{speed:.3g}' for speed in speeds)} GB/s" in warnings["n0--n1"]


@pytest.mark.parametrize("speeds", [(1.0, 1.0), (0.9, 0.8), (0.0, 0.0), (0.01, 0.01)])
def test_a_link_that_is_the_same_each_time_is_steady_be_it_good_or_bad(speeds):
    assert warned(repeated(*speeds)) == {}


def test_a_pair_that_was_measured_once_proves_no_steadiness():
    warnings = warned(fleet(FOUR))
    assert len(warnings) == 6
    assert all(words.startswith("incomplete") and "measured once" in words for words in warnings.values())


def test_slow_links_are_measured_again_and_slow_nodes_with_a_new_partner():
    assert pairwise.suspects(fleet(FOUR, slow_pair=("n1", "n0")).observations) == [("n0", "n1")]
    assert pairwise.suspects(repeated(1.0, 0.05).observations) == [("n0", "n1")]
    assert pairwise.suspects(fleet(FOUR).observations) == []
    parsed = fleet(FOUR, slow_node="n1")
    parsed.observations = [
        observation for observation in parsed.observations if observation.subject not in ("n1->n3", "n3->n1", "n1--n3")
    ]
    assert ("n1", "n3") in pairwise.suspects(parsed.observations)


def test_a_link_of_which_one_direction_was_measured_is_unknown_and_names_the_other():
    parsed = Parsed()
    for first, second in permutations(("n0", "n1", "n2"), 2):
        if (first, second) != ("n2", "n1"):
            parsed.saw("pair.bandwidth", f"{first}->{second}", 10.0, "GB/s", "f:1")
    scores = pairwise.derive(parsed.observations, ["n0", "n1", "n2"])
    links = {
        observation.subject: observation
        for observation in scores.observations
        if observation.quantity == "nccl.pair.link"
    }
    assert {link for link, observation in links.items() if observation.value is None} == {"n1--n2"}
    assert links["n1--n2"].why == "n2->n1 was not measured, only n1->n2"


def test_no_measurement_gives_no_score():
    assert pairwise.derive([], FOUR).observations == []
    parsed = Parsed()
    parsed.saw(pairwise.BANDWIDTH, "n0->n1", None, "GB/s", "e", "not measured")
    assert pairwise.derive(parsed.observations, FOUR).observations == []


def test_pairs_that_ran_all_reduce_are_judged_by_its_largest_and_its_smallest_size():
    parsed = Parsed()
    for first, second in combinations(FOUR, 2):
        for size, speed, time_us in (("8KiB", 0.1, 50.0), ("1GiB", 4.0 if "n2" in (first, second) else 40.0, 5e4)):
            parsed.saw(f"nccl.all_reduce.busbw@{size}", f"{first}--{second}", speed, "GB/s", "e")
            parsed.saw(f"nccl.all_reduce.time@{size}", f"{first}--{second}", time_us, "us", "e")
    assert scores(parsed, "nccl.pair.node") == {"n0": 1.0, "n1": 1.0, "n2": 0.1, "n3": 1.0}
    assert set(scores(parsed, "nccl.pair.link").values()) == {1.0}
    assert scores(parsed, "nccl.pair.node.latency")["n0"] == 50.0
    assert curve.curves(parsed.observations) == {}


def test_the_only_pair_has_nothing_healthy_to_compare_with_and_a_collective_no_direction():
    """0.006 GB/s of two sick directions were "a healthy direction of this fleet"; n0->n1 was named, n1 the culprit."""
    parsed = Parsed()
    for size, speed in (("8KiB", 0.0001), ("16MiB", 0.006)):
        parsed.saw(f"nccl.all_reduce.busbw@{size}", "n0--n1", speed, "GB/s", "e")
    words = {each.quantity: each.why for each in pairwise.derive(parsed.observations, FOUR[:2]).observations}
    assert words["nccl.pair.slowest"] == "n0 and n1; no other pair to compare with"
    assert words["nccl.pair.link"] == "n0 and n1 at 0.006 GB/s"


def test_pairs_that_ran_all_reduce_twice_were_measured_twice():
    """All repeats were taken for sizes of one measurement: no link of a GPU cluster was ever found steady."""
    parsed = Parsed()
    for repeat, speed in ((1, 40.0), (2, 30.0)):
        for size, share in (("8KiB", 0.001), ("1GiB", 1)):
            where = f"raw/pairs-{repeat}-1-n0-n1.jsonl:{size}"
            parsed.saw(f"nccl.all_reduce.busbw@{size}", "n0--n1", speed * share, "GB/s", where)
            parsed.saw(f"nccl.all_reduce.time@{size}", "n0--n1", 20.0 + repeat, "us", where)
    directions, links = pairwise.measured(as_read(parsed).observations)
    assert {pair: speed.all for pair, speed in directions.items()} == {("n0", "n1"): [40, 30], ("n1", "n0"): [40, 30]}
    assert links["n0", "n1"].all == [21, 22]
    assert directions["n0", "n1"].best == 40
    assert directions["n0", "n1"].steady == 0.75


def test_pairs_that_never_met_are_listed_and_so_is_the_node_that_sat_out():
    parsed = Parsed()
    for source, target in (("n0", "n1"), ("n1", "n0"), ("n2", "n3"), ("n3", "n2")):
        parsed.saw("pair.bandwidth", f"{source}->{target}", 1.0, "GB/s", "e")
    assert pairwise.derive(parsed.observations, ["n0", "n1", "n2", "n3", "n4"]).problems == [
        "2 of 10 pairs of nodes were exercised; not: n0--n2, n0--n3, n0--n4, n1--n2, n1--n3, n1--n4, n2--n4, n3--n4; "
        "without any partner: n4"
    ]
    assert pairwise.derive(parsed.observations, ["n0", "n1"]).problems == []


def test_before_the_rounds_the_pairs_with_a_node_that_is_not_there_count_as_not_exercised(capsys):
    assert main(["pairs", "--nodes", "n[0-3]", "--here", "n0,n2,n3"]) == 0
    out, err = capsys.readouterr()
    assert "n1" not in out
    assert err.startswith("3 rounds, 3 of 6 pairs; not exercised: 3 (not there: n1)")


def test_above_8_nodes_the_first_round_and_the_idle_node_are_printed(capsys, monkeypatch):
    assert main(["pairs", "--nodes", "n[0-8]"]) == 0
    out, err = capsys.readouterr()
    assert out == "n0,n1 n2,n3 n4,n5 n6,n7\n"
    assert err == (
        "round 1 of neighbours; each further one is chosen by what was measured; idle in the first round, paired in "
        "the next one: n8\n"
    )
    monkeypatch.setenv("BRINGUP_PAIR_ROUNDS", "all")
    assert main(["pairs", "--nodes", "n[0-8]"]) == 0
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (
        9,
        "9 rounds, 36 of 36 pairs; not exercised: 0 (BRINGUP_PAIR_ROUNDS=all measures every pair)\n",
    )


@pytest.mark.parametrize(("nodes", "notes"), [(1, 0), (2, 1)])
def test_a_training_that_tells_its_backend_is_evidence_about_its_own_scale(nodes: int, notes: int) -> None:
    """No gate of a training is about a scale; the fact says which log of NCCL belongs to it."""
    run = a_run(f"run_ddp_{nodes}node", [f"n{number}" for number in range(nodes)])
    parsed = Parsed()
    parsed.saw("nccl.backend", "1-node", "nccl", "text", "raw/rank0.jsonl:8")
    noted = judge.judge(run, profile.load("local-cpu"), parsed).notes
    assert sum("evidence about 1-node, which" in note for note in noted) == notes


def test_a_pair_that_was_measured_again_by_choice_is_no_evidence_about_others():
    """Above 8 nodes not all pairs are measured, and a slow node may then get a partner that was not planned."""
    nodes = [f"n{number}" for number in range(20)]
    run = a_run("nccl_pairwise", nodes, gpus=1)
    links = run.planned["nccl.pair.link"]
    chosen = next(pair for pair in combinations(nodes, 2) if tournament.link_name(pair) not in links)
    parsed = Parsed()
    for first, second in [link.split("--") for link in links] + [list(chosen)]:
        for source, target in ((first, second), (second, first)):
            parsed.saw(pairwise.BANDWIDTH, f"{source}->{target}", 1.0, "GB/s", "e")
        parsed.saw(pairwise.LATENCY, f"{first}--{second}", 50.0, "us", "e")
    parsed.add(pairwise.derive(parsed.observations, nodes))
    notes = judge.judge(run, profile.load("local-cpu"), parsed).notes
    assert [note for note in notes if "did not request" in note] == []
    parsed.saw("nccl.pair.link", "n0--n99", 1.0, "ratio", "e")
    notes = judge.judge(run, profile.load("local-cpu"), parsed).notes
    assert [note for note in notes if "did not request" in note] == [
        "evidence about n0--n99, which this run did not request"
    ]


def test_no_drill_leaves_to_chance_what_it_breaks():
    for drill in DRILLS:
        made = " ".join(word for command in (*drill.inject, *drill.during) for word in command)
        assert not any(word in made for word in ("numgen random", "$RANDOM", "shuf ", " loss ")), drill.id
