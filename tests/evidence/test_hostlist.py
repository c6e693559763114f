"""Slurm's node lists."""

import pytest
from bringup.errors import UsageError
from bringup.evidence.hostlist import expand


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("n0", ["n0"]),
        ("n[0-2]", ["n0", "n1", "n2"]),
        ("n[08-10,12],login", ["n08", "n09", "n10", "n12", "login"]),
        ("gpu[1-2]-ib", ["gpu1-ib", "gpu2-ib"]),
        ("a-b.c", ["a-b.c"]),
    ],
)
def test_node_lists_are_expanded_in_order(text, names):
    assert expand(text) == names


@pytest.mark.parametrize(
    "text",
    [
        "",
        "n[",
        "n[2-1]",
        "n[a-b]",
        "[0-1]",
        "n0,n0",
        "n0; rm -rf x",
        "$(id)",
        "n[0-999999999]",
        f"n[{'9' * 5000}]",
        "n 0",
    ],
)
def test_what_is_no_node_list_is_refused_in_one_line(text):
    with pytest.raises(UsageError, match=r"\S") as error:
        expand(text)
    assert "\n" not in str(error.value)
