"""Which node loses packets, by what both ends of each pair sent again."""

from collections.abc import Callable
from itertools import permutations

from bringup.derive import pairs
from bringup.evidence.parsed import Parsed

FOUR = ["n0", "n1", "n2", "n10"]


def lost(share: Callable[[str, str], float | None], nodes: list[str], repeats: int = 1) -> dict[str, object]:
    parsed = Parsed()
    for _ in range(repeats):
        for source, target in permutations(nodes, 2):
            value = share(source, target)
            words = None if value is not None else "the kernel is older than 4.6"
            parsed.saw(pairs.SENT_AGAIN, f"{source}->{target}", value, "ratio", "e", words)
    return {seen.subject: seen.value for seen in pairs.sent_again(parsed.observations).observations}


def test_a_node_that_loses_what_it_receives_is_named() -> None:
    assert lost(lambda source, target: 0.02 if target == "n1" else 0.0, FOUR) == {
        "n0": 0,
        "n1": 0.02,
        "n2": 0,
        "n10": 0,
    }


def test_a_node_that_loses_what_it_sends_is_named_though_one_partner_hears_all() -> None:
    shares = lost(lambda source, target: 0.03 if source == "n1" and target != "n0" else 0.0, FOUR)
    assert shares == {"n0": 0, "n1": 0.03, "n2": 0, "n10": 0}


def test_a_link_that_loses_packets_blames_neither_of_its_nodes() -> None:
    assert set(lost(lambda source, target: 0.02 if {source, target} == {"n0", "n10"} else 0.0, FOUR).values()) == {0}


def test_with_two_nodes_neither_is_blamed() -> None:
    assert lost(lambda source, target: 0.02, FOUR[:2]) == {}


def test_of_the_repeats_the_best_counts_and_what_was_not_counted_is_not_there() -> None:
    values = iter([*[0.5] * 6, *[0.001] * 6])
    assert lost(lambda source, target: next(values), FOUR[:3], repeats=2) == dict.fromkeys(FOUR[:3], 0.001)
    assert lost(lambda source, target: None, FOUR) == {}
