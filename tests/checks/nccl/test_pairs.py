"""Rounds of pairs, and which node or which link is to blame for slow ones."""

from collections.abc import Callable
from itertools import combinations, permutations

import pytest
from bringup.cli import main
from bringup.domains import pairs as pairwise
from bringup.drill.catalogue import DRILLS
from bringup.kernel import judge
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.plan import profile, scope
from bringup.kernel.plan import rounds as tournament
from bringup.readers import curve, slurm
from factory import a_run
from loops import for_each
from runs_for_tests import PASS, about, as_read, parsed_of, values

FOUR = ["n0", "n1", "n2", "n3"]
EIGHT = [f"n{number}" for number in range(8)]
N1_N0 = {("n1", "n0"): 0.01}  # n1 sends slowly to n0 alone
OF_NINE = ["--nodes", "n[0-8]"]
NEIGHBOURS = "round 1 of neighbours; each further one is chosen by what was measured; "
NEIGHBOURS += "idle in the first round, paired in the next one: n8\n"
FROM_N1 = {("n1", other): 0.01 for other in EIGHT}


@for_each(2, 3, 4, 5, 8, 9)
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
    assert tournament.in_rounds([("a", "b"), ("a", "c"), ("c", "d")]) == [[("a", "b"), ("c", "d")], [("a", "c")]]


def measured(quantity: str, share: Callable[[str, str], float | None], nodes: list[str], repeats: int = 1) -> Parsed:
    """Every direction measured, that often."""
    pairs = list(permutations(nodes, 2)) * repeats
    return parsed_of((quantity, f"{source}->{target}", share(source, target)) for source, target in pairs)


def fleet(nodes: list[str] = FOUR, slow: dict[tuple[str, str], float] | None = None, lossy: str = "") -> Parsed:
    """Every direction at 1 GB/s or what `slow` gives; the links of the lossy node are late."""
    parsed = measured(pairwise.BANDWIDTH, lambda *pair: (slow or {}).get(pair, 1.0), nodes)
    for pair in combinations(nodes, 2):
        parsed.saw(pairwise.LATENCY, "--".join(pair), 250_000.0 if lossy in pair else 50.0, "us", "e")
    return parsed


def repeated(*speeds: float) -> Parsed:
    """A fleet whose every direction was measured that often at 1 GB/s, and n1->n0 at these speeds."""
    parsed = Parsed()
    for speed in speeds:
        parsed.add(fleet(slow={("n1", "n0"): speed}))
    return parsed


def scores(parsed: Parsed, nodes: list[str] = FOUR, of: str = "") -> tuple[dict[str, object], dict[str, object]]:
    """What is said of nodes and of links, of those that are not at 1."""
    derived = pairwise.derive(parsed.observations, nodes)
    both = (values(derived, f"nccl.pair.{kind}{of}") for kind in ("node", "link"))
    nodes_of, links_of = ({name: value for name, value in of_kind.items() if value != 1.0} for of_kind in both)
    return nodes_of, links_of


def in_both(pair: tuple[str, str], share: float) -> dict[tuple[str, str], float]:
    return {pair: share, pair[::-1]: share}


SILENT = {pair: 0.0 for pair in permutations(FOUR, 2) if "n2" in pair}
# n0 and n1 do not reach each other; n1 and n2 shared a moment of load
LOADED = in_both(("n0", "n1"), 0.0) | in_both(("n1", "n2"), 0.2)
LOADED_LINKS = {"n0--n1": 0.0, "n1--n3": 5.0}  # 5: of what its nodes do elsewhere


@for_each(
    *((fleet(nodes, FROM_N1), nodes, {"n1": 0.01}, {}) for nodes in (FOUR[:3], FOUR, EIGHT)),
    *((fleet(FOUR, {("n1", "n0"): share}), FOUR, {}, {"n0--n1": share}) for share in (0.01, 0.0)),
    *((fleet(FOUR[:3], {("n1", "n0"): share}), FOUR[:3], {}, {"n0--n1": share}) for share in (0.01, 0.0)),
    (fleet(FOUR, SILENT), FOUR, {"n2": 0.0}, {}),  # nobody reaches it
    # not measured again, one sample of another link makes no slow node of it
    (measured(pairwise.BANDWIDTH, lambda *p: LOADED.get(p, 1.0), FOUR), FOUR, {"n1": None}, LOADED_LINKS),
    (measured(pairwise.BANDWIDTH, lambda *p: LOADED.get(p, 1.0), FOUR, 2), FOUR, {"n1": 0.2}, LOADED_LINKS),
    (fleet(FOUR[:2], FROM_N1), FOUR[:2], {}, {"n0--n1": 0.01}),  # two nodes have a link and no culprit
    (repeated(0.05, 1.0), FOUR, {}, {}),
    (Parsed(), FOUR, {}, {}),
    (parsed_of([(pairwise.BANDWIDTH, "n0->n1", None)]), FOUR, {}, {}),
    ids=lambda value: str(value)[:40],
)
def test_a_slow_or_silent_node_or_link_is_named_and_nothing_beside_it(parsed, nodes, slow_nodes, slow_links):
    assert scores(parsed, nodes) == (slow_nodes, slow_links)
    if len(nodes) > 2 and len(parsed.observations) > 1:
        assert values(pairwise.derive(parsed.observations, nodes), "nccl.pair.node").keys() == {*nodes}


def test_two_nodes_have_a_slowest_pair_no_measurement_gives_no_score_and_a_lossy_node_explains_its_links():
    slowest = pairwise.derive(fleet(FOUR[:2], FROM_N1).observations, FOUR[:2])
    assert values(slowest, "nccl.pair.slowest") == {"job": 0.01}
    assert values(slowest, "nccl.pair.node") == {}
    assert pairwise.derive([], FOUR).observations == []
    nodes, links = scores(fleet(lossy="n1"), of=".latency")
    assert (nodes["n0"], nodes["n1"]) == (50, 250_000)
    assert set(links.values()) == {0.0}


TREE = "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[0-1]\nSwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[2-3,7]\n"
TREE += "SwitchName=s2 Level=1 LinkSpeed=1 Nodes=n[0-3,7] Switches=s[0-1]\n"
BLOCKS = "BlockName=b0 BlockIndex=0 Nodes=n[0-1] BlockSize=2\nBlockName=b1 BlockIndex=1 Nodes=n[2-3] BlockSize=2\n"
BLOCKS += "AggregatedBlock=b[0-1] BlockIndex=2 Nodes=n[0-3] BlockSize=4\n"


@for_each(
    (TREE, 0.01, "n0 with those under s0: 0.01 GB/s, under s1: 1 GB/s"),
    (BLOCKS, 0.01, "n0 with those under b0: 0.01 GB/s, under b1: 1 GB/s"),
    (TREE.replace("n[0-1]", "n[0,4]").replace("2-3", "1-3"), 1.0, "n1 with those under s1: 1 GB/s"),
    ("SwitchName=s0 Level=0 Nodes=n0\n", None, "of the measured pairs 0 are under one switch and 12 are not"),
    ("SwitchName=s0 Level=0 Nodes=n[0-3]\n", None, "of the measured pairs 12 are under one switch and 0 are not"),
    ("", None, "of the measured pairs 0 are under one switch"),
)
def test_pairs_that_are_slow_under_one_switch_contradict_the_topology_of_slurm(topology, share, words):
    parsed = fleet(slow=N1_N0)
    parsed.add(slurm.topology(topology, "raw/scontrol-topology.txt", FOUR))
    (topology_share,) = pairwise.topology(Seen(parsed.observations)).observations
    assert (topology_share.value, parsed.problems) == (share, [])
    assert words in (topology_share.why or "")


def test_pairs_that_carried_nothing_say_nothing_of_the_topology():
    parsed = measured(pairwise.BANDWIDTH, lambda *_: 0.0, FOUR)
    parsed.add(slurm.topology(TREE, "raw/scontrol-topology.txt", FOUR))
    assert pairwise.topology(Seen(parsed.observations)).observations == []


@for_each(
    (None, True),  # Slurm gave no answer: the gate stays planned, and is incomplete
    ({}, False),
    (dict.fromkeys(FOUR, "s0"), False),
    ({node: node for node in FOUR}, False),
    ({"n0": "s0", "n1": "s0", "n2": "s1", "n3": "s1"}, True),
)
def test_switches_are_compared_where_slurm_divides_the_nodes(leaves, is_asked):
    left_out = [entry.gate for entry in scope.without_switches("nccl_pairwise", leaves)]
    assert left_out == ([] if is_asked else ["nccl.pair.slowest.between", "nccl.pair.topology"])


def test_the_best_of_repeated_measurements_counts_and_all_are_shown():
    parsed = fleet(slow=N1_N0)
    parsed.saw(pairwise.BANDWIDTH, "n1->n0", 0.9, "GB/s", "later")
    derived = pairwise.derive(parsed.observations, FOUR).observations
    (link,) = (seen for seen in derived if (seen.quantity, seen.subject) == ("nccl.pair.link", "n0--n1"))
    assert (link.value, link.evidence) == (0.9, "later")
    assert "0.01, 0.9" in str(link.why)


def warned(parsed: Parsed) -> dict[str, str]:
    """Link -> what is said of it, of the links that warn; links are judged as on an unknown GPU cluster."""
    parsed.add(pairwise.derive(parsed.observations, FOUR))
    verdicts = about("nccl.pair.link.steady", parsed, a_run("nccl_pairwise", FOUR, gpus=1, profile="generic")).values()
    assert len(verdicts) == 6
    return {v.subject: f"{v.outcome}: {v.observed} {v.cause}" for v in verdicts if v.outcome is not PASS}


@pytest.mark.parametrize("speeds", [(0.05, 1.0), (1.0, 0.05), (1.0, 1.0, 0.05), (0.0, 1.0)])
def test_a_link_that_is_slow_at_times_is_a_warning_that_names_it_though_its_best_is_good(speeds):
    warnings = warned(repeated(*speeds))
    assert list(warnings) == ["n0--n1"]
    assert warnings["n0--n1"].startswith("warn: ")
    assert f"n1->n0 at {', '.join(f'{speed:.3g}' for speed in speeds)} GB/s" in warnings["n0--n1"]


def test_a_link_that_is_the_same_each_time_is_steady_and_one_that_was_measured_once_proves_nothing():
    for speeds in ((1.0, 1.0), (0.9, 0.8), (0.0, 0.0), (0.01, 0.01)):
        assert warned(repeated(*speeds)) == {}
    warnings = warned(fleet())
    assert len(warnings) == 6
    assert all(words.startswith("incomplete") and "measured once" in words for words in warnings.values())


def test_slow_links_are_measured_again_and_slow_nodes_with_a_new_partner():
    assert pairwise.suspects(fleet(slow=N1_N0).observations) == [("n0", "n1")]
    assert pairwise.suspects(repeated(1.0, 0.05).observations) == [("n0", "n1")]
    assert pairwise.suspects(fleet().observations) == []
    slow = [seen for seen in fleet(slow=FROM_N1).observations if not {"n1", "n3"} <= set(seen.subject.split("->"))]
    assert ("n1", "n3") in pairwise.suspects([seen for seen in slow if seen.subject != "n1--n3"])


def test_a_link_of_which_one_direction_was_measured_is_unknown_and_names_the_other():
    parsed = measured(pairwise.BANDWIDTH, lambda *_: 10.0, FOUR[:3])
    parsed.observations = [seen for seen in parsed.observations if seen.subject != "n2->n1"]
    derived = pairwise.derive(parsed.observations, FOUR[:3]).observations
    unknown = {s.subject: s.why for s in derived if s.quantity == "nccl.pair.link" and s.value is None}
    assert unknown == {"n1--n2": "n2->n1 was not measured, only n1->n2"}


def test_pairs_that_ran_all_reduce_are_judged_by_its_largest_and_its_smallest_size():
    facts = []
    for pair in combinations(FOUR, 2):
        for size, speed, time_us in (("8KiB", 0.1, 50.0), ("1GiB", 4.0 if "n2" in pair else 40.0, 5e4)):
            facts.append((f"nccl.all_reduce.busbw@{size}", "--".join(pair), speed))
            facts.append((f"nccl.all_reduce.time@{size}", "--".join(pair), time_us))
    parsed = parsed_of(facts)
    assert scores(parsed) == ({"n2": 0.1}, {})
    assert scores(parsed, of=".latency")[0]["n0"] == 50.0
    assert curve.curves(parsed.observations) == {}


def test_the_only_pair_has_nothing_healthy_to_compare_with_and_a_collective_no_direction():
    """0.006 GB/s of two sick directions were "a healthy direction of this fleet"; n0->n1 was named, n1 the culprit."""
    speeds = {"8KiB": 0.0001, "16MiB": 0.006}
    parsed = parsed_of((f"nccl.all_reduce.busbw@{size}", "n0--n1", speed) for size, speed in speeds.items())
    words = {each.quantity: each.why for each in pairwise.derive(parsed.observations, FOUR[:2]).observations}
    assert words["nccl.pair.slowest"] == "n0 and n1; no other pair to compare with"
    assert words["nccl.pair.link"] == "n0 and n1 at 0.006 GB/s"


def test_pairs_that_ran_all_reduce_twice_were_measured_twice():
    """All repeats were taken for sizes of one measurement: no link of a GPU cluster was ever found steady."""
    facts = []
    for repeat, speed in ((1, 40.0), (2, 30.0)):
        for size, share in (("8KiB", 0.001), ("1GiB", 1)):
            where = f"raw/pairs-{repeat}-1-n0-n1.jsonl:{size}"
            facts.append((f"nccl.all_reduce.busbw@{size}", "n0--n1", speed * share, None, where))
            facts.append((f"nccl.all_reduce.time@{size}", "n0--n1", 20.0 + repeat, None, where))
    directions, links = pairwise.measured(as_read(parsed_of(facts)).observations)
    assert {pair: speed.all for pair, speed in directions.items()} == {("n0", "n1"): [40, 30], ("n1", "n0"): [40, 30]}
    assert links["n0", "n1"].all == [21, 22]
    assert (directions["n0", "n1"].best, directions["n0", "n1"].steady) == (40, 0.75)


def test_pairs_that_never_met_are_listed_and_so_is_the_node_that_sat_out():
    met = ("n0->n1", "n1->n0", "n2->n3", "n3->n2")
    parsed = parsed_of((pairwise.BANDWIDTH, direction, 1.0) for direction in met)
    missed = "n0--n2, n0--n3, n0--n4, n1--n2, n1--n3, n1--n4, n2--n4, n3--n4"
    says = f"2 of 10 pairs of nodes were exercised; not: {missed}; without any partner: n4"
    assert pairwise.derive(parsed.observations, [*FOUR, "n4"]).problems == [says]
    assert pairwise.derive(parsed.observations, FOUR[:2]).problems == []


@for_each(
    (["--nodes", "n[0-3]", "--here", "n0,n2,n3"], "", 3, "3 rounds, 3 of 6 pairs; not exercised: 3 (not there: n1)"),
    (OF_NINE, "", 1, NEIGHBOURS),
    (OF_NINE, "all", 9, "9 rounds, 36 of 36 pairs; not exercised: 0 (BRINGUP_PAIR_ROUNDS=all measures every pair)\n"),
)
def test_rounds_are_printed_with_what_they_leave_out(capsys, monkeypatch, arguments, every, out, err):
    monkeypatch.setenv("BRINGUP_PAIR_ROUNDS", every)
    assert main(["pairs", *arguments]) == 0
    printed = capsys.readouterr()
    assert (len(printed.out.splitlines()), printed.err[: len(err)]) == (out, err)
    assert "--here" not in arguments or "n1" not in printed.out


def noted(run, parsed: Parsed, words: str) -> list[str]:
    return [note for note in judge.judge(run, profile.load("local-cpu"), parsed).notes if words in note]


@for_each((1, 0), (2, 1))
def test_a_training_that_tells_its_backend_is_evidence_about_its_own_scale(nodes, notes):
    """No gate of a training is about a scale; the fact says which log of NCCL belongs to it."""
    run = a_run(f"run_ddp_{nodes}node", FOUR[:nodes])
    assert len(noted(run, parsed_of([("nccl.backend", "1-node", "nccl")]), "evidence about 1-node, which")) == notes


def test_a_pair_that_was_measured_again_by_choice_is_no_evidence_about_others():
    """Above 8 nodes not all pairs are measured, and a slow node may then get a partner that was not planned."""
    nodes = [f"n{number}" for number in range(20)]
    run = a_run("nccl_pairwise", nodes, gpus=1)
    links = run.planned["nccl.pair.link"]
    chosen = next(pair for pair in combinations(nodes, 2) if tournament.link_name(pair) not in links)
    parsed = Parsed()
    for pair in [link.split("--") for link in links] + [list(chosen)]:
        parsed.add(fleet(pair))
    parsed.add(pairwise.derive(parsed.observations, nodes))
    assert noted(run, parsed, "did not request") == []
    parsed.saw("nccl.pair.link", "n0--n99", 1.0, "ratio", "e")
    assert noted(run, parsed, "did not request") == ["evidence about n0--n99, which this run did not request"]


def test_no_drill_leaves_to_chance_what_it_breaks():
    for drill in DRILLS:
        made = " ".join(word for command in (*drill.inject, *drill.during) for word in command)
        assert not any(word in made for word in ("numgen random", "$RANDOM", "shuf ", " loss ")), drill.id


# ---- which node loses packets, by what both ends of each pair sent again

TEN = ["n0", "n1", "n2", "n10"]


@for_each(
    (lambda _, target: 0.02 if target == "n1" else 0.0, TEN, {"n1": 0.02}),
    # though one partner hears all
    (lambda source, target: 0.03 if source == "n1" and target != "n0" else 0.0, TEN, {"n1": 0.03}),
    (lambda *pair: 0.02 if set(pair) == {"n0", "n10"} else 0.0, TEN, {}),  # a link, and neither of its nodes
    (lambda *_: 0.02, TEN[:2], None),  # with two nodes neither is blamed
    (lambda *_: None, TEN, None),  # the kernel is older than 4.6
    ids=lambda value: str(value)[:30],
)
def test_a_node_that_loses_what_it_sends_or_receives_is_named(share, nodes, lossy):
    seen = values(pairwise.sent_again(measured(pairwise.SENT_AGAIN, share, nodes).observations), "nccl.pair.node.lost")
    assert seen == ({} if lossy is None else dict.fromkeys(nodes, 0) | lossy)


def test_of_repeats_of_a_loss_the_best_counts():
    shares = iter([*[0.5] * 6, *[0.001] * 6])
    again = pairwise.sent_again(measured(pairwise.SENT_AGAIN, lambda *_: next(shares), TEN[:3], 2).observations)
    assert values(again, "nccl.pair.node.lost") == dict.fromkeys(TEN[:3], 0.001)
