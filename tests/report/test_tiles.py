"""A tile per question, with the number that is nearest to its limit."""

import re

from bringup.records import Answer, ClaimAnswer, Kind, Mark, Measured, Outcome
from bringup.report import next_steps, page, tiles
from bringup.report.links import nowhere
from factory import GPU_CLUSTER, a_run, a_verdict, gathered, judged_of, playbook
from loops import for_each


def number(name: str, value: float | str, limit: float | None, rule: str = "at_least") -> Measured:
    return Measured(name=name, value=value, unit="GB/s", rule=rule, limit=limit, at="8GiB", subject="2-nodes")


def tile(*numbers: Measured, mark: Mark = Mark.PASS, reservations: tuple[str, ...] = ()) -> tiles.Tile:
    claim = ClaimAnswer(
        claim="c", says="s", mark=mark, numbers=list(numbers), verdicts=1, nodes=["n0"], gpus_per_node=8, why=None
    )
    answer = Answer(question=4, mark=mark, line="the line", reservations=list(reservations), claims=[claim])
    return tiles.tiles([answer])[0]


WITHOUT_A_LIMIT = ((), (number("b", "eth0", None),), (number("b", 3.0, None),), (number("b", 0.0, 10.0),))


@for_each(
    ("shown", "number_of_it"),
    [
        (
            tile(number("far", 400.0, 100.0), number("near", 390.0, 380.0), number("loose", 9.0, 10.0, "at_most")),
            "near 390 GB/s at 8GiB on 2-nodes, floor 380",
        ),
        (
            tile(number("latency", 9.9, 10.0, "at_most"), number("far", 400.0, 100.0)),
            "latency 9.9 GB/s at 8GiB on 2-nodes, ceiling 10",
        ),
        *((tile(*numbers), "1 of 1 claims are proven") for numbers in WITHOUT_A_LIMIT),
        (tile(mark=Mark.REHEARSED), "0 of 1 claims are proven"),
        (tile(number("far", 400.0, 100.0), mark=Mark.FAIL), "1 of 1 claims failed"),  # what holds is not what failed
        (tile(number("slow", 90.0, 100.0), mark=Mark.FAIL), "slow 90 GB/s at 8GiB on 2-nodes, floor 100"),
    ],
)
def test_the_number_is_the_one_nearest_to_its_limit_else_the_claims_are_counted(shown: tiles.Tile, number_of_it: str):
    assert shown.number == number_of_it


def test_what_failed_says_its_line_and_what_is_only_rehearsed_says_why_in_whole_words():
    rehearsed = tile(mark=Mark.REHEARSED, reservations=("rehearsed, not proven: x", "more"))
    assert (tile(mark=Mark.FAIL).reason, rehearsed.reason, tile().reason) == (
        "the line",
        "rehearsed, not proven: x",
        "",
    )
    long = tile(mark=Mark.REHEARSED, reservations=("word " * 40,)).reason
    assert long.endswith("word …")
    assert len(long) <= tiles.MOST + 2


def test_the_page_of_a_healthy_gpu_cluster_has_a_tile_for_each_question_and_says_accept():
    html = page.render(gathered(*playbook(4, GPU_CLUSTER)))
    assert html.count('class="tile ') == 6
    assert re.search(r'<h1 id="top">Accept(, except)?</h1>', html)


def test_a_tile_of_what_failed_counts_the_checks_and_names_their_subjects():
    run = judged_of(
        a_verdict("discovery.gpu.count", "n1"), a_verdict("discovery.gpu.model", "n0"), run=a_run("discovery")
    )
    collection = gathered(run)
    shown = tiles.tiles(collection.answers, collection.verdicts)[0]
    assert shown.answer.mark is Mark.FAIL
    assert (shown.number, shown.reason) == ("2 failed checks", "on n1, n0")


def test_checks_and_causes_add_up_in_the_sentence_the_tiles_and_the_cards():
    """A page said: 5 fail; 1 of 8 and 2 of 6 claims failed; and 3 more failures; four cards."""
    gates = ("discovery.gpu.count", "discovery.gpu.ecc", "discovery.rdma.active", "discovery.rdma.same")
    failed = [a_verdict(gate, node) for gate in gates for node in ("n0", "n1")]
    others = [
        a_verdict("discovery.os", "n0", Outcome.PASS),
        a_verdict("discovery.kernel", "n0", Outcome.WARN),
        a_verdict("discovery.gpu.model", "n0", Outcome.INCOMPLETE, kind=Kind.BLOCKED),
        a_verdict("discovery.shm", "n0", Outcome.INCOMPLETE, kind=Kind.UNDECLARED),
        a_verdict("discovery.swap", "n0", Outcome.NO_LIMIT, kind=Kind.UNDECLARED),
    ]
    run = judged_of(*failed, *others, run=a_run("discovery"))
    collection = gathered(run)
    cards = [card for card in next_steps.cards([run], nowhere) if card.outcome is Outcome.FAIL]
    assert next_steps.counted([run]) == (
        f"13 checks: 1 passed, 8 failed for {len(cards)} causes, 1 warned for 1 cause, "
        "1 incomplete as a consequence, 1 without the limit that the site asks for, 1 without a limit"
    )
    assert sum(card.count for card in cards) == 8
    shown = tiles.tiles(collection.answers, collection.verdicts)
    assert [tile.number for tile in shown if tile.answer.mark is Mark.FAIL] == ["4 failed checks", "4 failed checks"]


def test_the_decision_keeps_the_spaces_between_its_words():
    run = judged_of(a_verdict("discovery.gpu.count", "n1"), run=a_run("discovery"))
    assert "</span> 1 broken: n1." in page.render(gathered(run))
