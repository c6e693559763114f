"""The closed set of comparisons."""

import pytest
from bringup.kernel.errors import RuleError
from bringup.kernel.plan.rules import holds, in_words, odd_ones
from loops import for_each


@for_each(
    ("equals", 0, 0, True),
    ("equals", 1, 0, False),
    ("equals", "7:0", "7:0", True),
    ("equals", True, True, True),
    ("at_least", 380.0, 380, True),
    ("at_least", 379.9, 380, False),
    ("at_most", 0.0, 1e-5, True),
    ("at_most", 2e-5, 1e-5, False),
    ("between", 1, [1, 3], True),
    ("between", 3, [1, 3], True),
    ("between", 0.99, [1, 3], False),
    ("between", 4, [1, 3], False),
    ("one_of", "IDLE", ["IDLE", "MIXED"], True),
    ("one_of", "IDLE+DRAIN", ["IDLE", "MIXED"], False),
    ("one_of", 4, ["4"], False),
    ("one_of", "unknown:Mesh", ["rdma-verbs", "unknown:Mesh"], True),
    ("one_of", "sockets+unknown:Mesh", ["rdma-verbs"], False),
)
def test_a_rule_can_hold_and_can_fail(rule, value, expected, good):
    assert holds(rule, value, expected) is good


@for_each(
    ("at_least", "380", 380),
    ("at_least", True, 1),
    ("equals", True, 1),
    ("equals", "0", 0),
    ("between", 1, [1]),
    ("one_of", 1, []),
    ("one_of", "unknown:Mesh", ["rdma-verbs"]),
    ("one_of", "rdma-verbs+unknown:Mesh", ["rdma-verbs"]),
)
def test_what_cannot_be_compared_is_not_guessed(rule, value, expected):
    with pytest.raises(RuleError):
        holds(rule, value, expected)


def test_of_several_unknown_words_the_first_is_named():
    with pytest.raises(RuleError, match=r"^Mesh is not known"):
        holds("one_of", "unknown:Mesh+unknown:Torus", ["rdma-verbs"])


def test_the_odd_node_is_named_against_the_majority():
    assert set(odd_ones("all_equal", {"n0": "6.1", "n1": "6.1", "n2": "6.2"})) == {"n2"}
    assert odd_ones("all_equal", {"n0": "6.1", "n1": "6.1"}) == {}


def test_without_a_majority_every_node_is_odd():
    none = "has {}, and no majority says which is right"
    odd = odd_ones("all_equal", {"n0": "6.1", "n1": "6.2"})
    assert odd == {"n0": f"n1 {none.format(6.2)}", "n1": f"n0 {none.format(6.1)}"}
    four = {"n0": "6.1", "n1": "6.2", "n2": "6.3", "n3": "6.4"}
    assert odd_ones("all_equal", four)["n0"] == "4 different values and no majority"


def test_without_a_majority_those_that_are_at_fault_by_another_gate_are_the_odd_ones():
    two = {"n0": "8 up", "n1": "7 up"}
    assert odd_ones("all_equal", two, at_fault={"n1"}) == {"n1": "n0 has 8 up"}
    assert set(odd_ones("all_equal", two, at_fault={"n0", "n1"})) == {"n0", "n1"}, "nobody is left to compare with"
    alike = {"n0": "8 up", "n1": "8 up", "n2": "7 up", "n3": "7 up"}
    assert odd_ones("all_equal", alike, at_fault={"n2"}).keys() == set(alike), "those that are left differ"
    assert odd_ones("all_equal", alike, at_fault={"n2", "n3"}).keys() == {"n2", "n3"}
    assert odd_ones("all_equal", alike, at_fault={"n1", "n2", "n3"}).keys() == {"n2", "n3"}, "n1 has what n0 has"


def test_a_majority_is_right_whatever_another_gate_says():
    assert odd_ones("all_equal", {"n0": "8 up", "n1": "8 up", "n2": "7 up"}, at_fault={"n0"}).keys() == {"n2"}


def test_a_shared_unique_thing_is_odd_on_all_that_share_it():
    assert set(odd_ones("all_distinct", {"n0": "a", "n1": "b", "n2": "a"})) == {"n0", "n2"}


def test_of_peers_only_one_that_is_slow_by_more_than_the_share_is_odd():
    usual = {f"n{number}": 100.0 + number % 3 - 1 for number in range(9)}  # they differ by 1 %

    def odd(speed: float) -> set[str]:
        return set(odd_ones("near_peers", usual | {"x": speed}, 0.1))

    assert odd(80.0) == odd(88.0) == {"x"}
    assert odd(90.0) == odd(91.0) == odd(120.0) == set()


def test_expectations_are_said_as_a_reader_would():
    assert in_words("at_least", 440, "GB/s") == "≥ 440 GB/s"
    assert in_words("equals", True, "flag") == "yes"
    assert in_words("between", [1, 2], "s") == "1 to 2 s"
