"""Groups across nodes: which ranks are in one, and how long its collectives wait."""

import datetime
from types import SimpleNamespace

import groups


def test_a_group_has_the_ranks_of_one_place_on_each_node_and_the_patience_of_the_program(monkeypatch):
    """new_group() does not take the timeout of the whole group: a hang took the backend's half hour."""
    monkeypatch.setenv("BRINGUP_HANG_S", "20")
    made = []

    def new_group(ranks, timeout):
        made.append((ranks, timeout))
        return f"group of {ranks}"

    world = SimpleNamespace(rank=3, dist=SimpleNamespace(new_group=new_group))
    bench = groups.across_nodes(world, ["n0", "n0", "n1", "n1"])
    assert made == [([0, 2], datetime.timedelta(seconds=20)), ([1, 3], datetime.timedelta(seconds=20))]
    assert (bench.ranks, bench.rank, bench.world, bench.group) == ([1, 3], 1, 2, "group of [1, 3]")
