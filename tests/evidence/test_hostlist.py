"""Slurm's node lists."""

import pytest
from bringup.kernel.errors import UsageError
from bringup.kernel.facts import names
from bringup.kernel.facts.hostlist import FEW, expand, shortened
from loops import for_each


@for_each(
    ("n0", ["n0"]),
    ("n[0-2]", ["n0", "n1", "n2"]),
    ("n[08-10,12],login", ["n08", "n09", "n10", "n12", "login"]),
    ("gpu[1-2]-ib", ["gpu1-ib", "gpu2-ib"]),
    ("r[0-1]n[08,10]", ["r0n08", "r0n10", "r1n08", "r1n10"]),
    ("a-b.c", ["a-b.c"]),
    ("gn1[0-9]-ib", [f"gn1{last}-ib" for last in range(10)]),
    ("[08-10],m1", ["08", "09", "10", "m1"]),
    ("n1, n2", ["n1", "n2"]),
    ("n1,n[0-1]", ["n1", "n0"]),  # srun(1): duplicates are ignored
)
def test_node_lists_are_expanded_in_order(text, names):
    assert expand(text) == names


@for_each(
    *("", "n[", "n[2-1]", "n[a-b]", "[]", "n[0-1][", "n[0-1]]", "n 0", "n0; rm -rf x", "$(id)"),
    *("x[1-30][4-9]p", "012[0-100]L6", "0[8-10]0"),
    *("n[0-999999999]", "r[0-9999]n[0-9999]", f"n[{'9' * 5000}]"),
)
def test_what_is_no_node_list_is_refused_in_one_line(text):
    with pytest.raises(UsageError, match=r"\S") as error:
        expand(text)
    assert "\n" not in str(error.value)


@for_each(
    (["n0", "n1", "n2"], "n0,n1,n2"),
    ([f"n{number}" for number in range(12)], "n[0-9],n[10-11]"),
    (["n08", "n09", "n10", "n12", "login"], "n[08-10,12],login"),
    ([f"gpu{number}-ib" for number in range(1, 6)], "gpu1-ib,gpu2-ib,gpu3-ib,gpu4-ib,gpu5-ib"),
    ([f"n{number}.lab.org" for number in range(1, 6)], "n1.lab.org,n2.lab.org,n3.lab.org,n4.lab.org,n5.lab.org"),
    ([f"r{rack}-n7" for rack in range(5)], "r0-n7,r1-n7,r2-n7,r3-n7,r4-n7"),
    ([f"r{rack:02}-n{node:02}" for rack in range(2) for node in range(3)], "r[00-01]-n[00-02]"),
    (["r0n1", "r0n2", "r1n1", "r1n2", "r2n1", "r2n3", "x"], "r[0-1]n[1-2],r2n[1,3],x"),
    (["a", "b", "c", "d", "n7"], "a,b,c,d,n7"),
    (["8", "9", "10", "11", "012"], "[8-9],[10-11],012"),
)
def test_many_names_become_a_node_list_that_says_the_same(names, text):
    assert shortened(names) == text
    assert sorted(expand(shortened(names))) == sorted(names)


def test_the_nodes_of_a_large_cluster_fit_into_a_line():
    names = [f"gpu-{number // 32:02}-{number % 32:02}" for number in range(1024)]
    assert shortened(names) == "gpu-[00-31]-[00-31]"
    assert len(names) > FEW
    assert expand(shortened(names)) == names


@for_each(
    (range(10, 88, 2), f"gn[{','.join(map(str, range(10, 88, 2)))}] (39)"),
    (range(10, 90, 2), "gn10, gn12, gn14, gn16, gn18, gn20, … gn88 (40)"),
)
def test_a_list_of_nodes_is_in_slurms_form_up_to_120_characters(numbers, words):
    assert names.listed([f"gn{number}" for number in numbers]) == words
