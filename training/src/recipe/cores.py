"""How many threads this rank computes with on its host.

One is the default (OMP_NUM_THREADS in training/env.sh): the GPU computes, and ranks share the cores. With --cpu-offload
the optimizer's update is computed on the host, over all states of the rank. Then a rank takes its share of the cores.
"""

from __future__ import annotations

import os
from collections.abc import Set

import binding
import torch
from facts import node_name

from recipe import group

Place = tuple[str, Set[int]]  # host, CPUs that the rank may run on


def share(cores: int, places: list[Place], rank: int) -> int:
    """How many of `cores`, which this rank may run on, are its share: they are divided among the ranks of its host that
    may run on some of them too.

    places: index = rank.
    """
    host, mine = places[rank]
    sharing = sum(other == host and bool(mine & theirs) for other, theirs in places)
    return max(1, cores // sharing)


def take_share() -> None:
    """A collective. If OMP_NUM_THREADS requests two threads or more, their number is not changed."""
    places = group.gather((node_name(), os.sched_getaffinity(0)), tuple[str, set[int]])
    if torch.get_num_threads() == 1:
        torch.set_num_threads(share(binding.cores(), places, group.RANK))
