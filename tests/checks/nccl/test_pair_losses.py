"""Which node or link loses packets, by what both ends of each pair sent again."""

from collections.abc import Callable
from itertools import permutations

from bringup.derive import pair_losses
from bringup.evidence.parsed import Parsed

FOUR = ["n0", "n1", "n2", "n10"]


def lost(share: Callable[[str, str], float | None], nodes: list[str], repeats: int = 1) -> dict[tuple[str, str], float]:
    parsed = Parsed()
    for _ in range(repeats):
        for source, target in permutations(nodes, 2):
            value = share(source, target)
            words = None if value is not None else "the kernel is older than 4.6"
            parsed.saw(pair_losses.SENT_AGAIN, f"{source}->{target}", value, "ratio", "e", words)
    derived = pair_losses.derive(parsed.observations, nodes)
    return {(seen.quantity, seen.subject): seen.value for seen in derived.observations}  # type: ignore[misc]


def test_a_node_that_loses_what_it_receives_is_named_and_none_of_its_links() -> None:
    shares = lost(lambda source, target: 0.02 if target == "n1" else 0.0, FOUR)
    assert {key: value for key, value in shares.items() if value} == {("nccl.pair.node.lost", "n1"): 0.02}
    assert len(shares) == 4 + 6


def test_a_node_that_loses_what_it_sends_is_named_though_one_partner_hears_all() -> None:
    shares = lost(lambda source, target: 0.03 if source == "n1" and target != "n0" else 0.0, FOUR)
    assert shares["nccl.pair.node.lost", "n1"] == 0.03


def test_a_link_that_loses_packets_blames_neither_of_its_nodes() -> None:
    shares = lost(lambda source, target: 0.02 if (source, target) == ("n0", "n10") else 0.0, FOUR)
    assert {key: value for key, value in shares.items() if value} == {("nccl.pair.link.lost", "n0--n10"): 0.02}


def test_with_two_nodes_only_the_link_is_judged() -> None:
    assert lost(lambda source, target: 0.02, FOUR[:2]) == {("nccl.pair.link.lost", "n0--n1"): 0.02}


def test_of_the_repeats_the_best_counts_and_what_nobody_counted_is_not_there() -> None:
    values = iter([0.5, 0.0, 0.001, 0.0])
    assert lost(lambda source, target: next(values), FOUR[:2], repeats=2) == {("nccl.pair.link.lost", "n0--n1"): 0.001}
    assert lost(lambda source, target: None, FOUR) == {}
