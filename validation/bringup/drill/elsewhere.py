"""Drills on a cluster that is not the local one: in the names of its nodes, with its ranks, and only where they mean something."""

from __future__ import annotations

import re
from dataclasses import replace

from bringup.checks.catalogue import GATES
from bringup.plan.drill import Drill
from bringup.plan.gate import FromProfile
from bringup.plan.profile import Profile

_NODE = re.compile(r"\bn([0-3])\b")
_RANK = re.compile(r"\bn([0-3])/rank(\d+)\b")
_SIZE = re.compile(r"(?<= at) \d+[KMG]iB$")  # of a message: which ones are measured depends on the engine
_ASKED = re.compile(r"(?<=:)(\d+)(?=@|$)")  # of BRINGUP_DRILL=kill-rank:3@4: a number after the colon is a rank


def on_nodes(drill: Drill, names: tuple[str, ...], gpus: int) -> Drill:
    """The drill with the names of these nodes, which have `gpus` GPUs each. Its ranks keep their place on their node.

    names: at least `drill.nodes` of them.
    """

    def rank_there(node: int, rank: int) -> int:
        return node * gpus + min(rank - node * drill.gpus, gpus - 1)

    def text(declared: str) -> str:
        ranked = _RANK.sub(lambda m: f"n{m[1]}/rank{rank_there(int(m[1]), int(m[2]))}", declared)
        return _NODE.sub(lambda m: names[int(m[1])], ranked)

    def asked(value: str) -> str:
        return _ASKED.sub(lambda m: str(rank_there(int(m[1]) // drill.gpus, int(m[1]))), text(value))

    def pairs(declared: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
        return tuple((gate, text(subject)) for gate, subject in declared)

    environment = tuple((name, asked(value) if name == "BRINGUP_DRILL" else value) for name, value in drill.environment)
    # a number that stands first is a count of the declared cluster's GPUs or ranks
    says = "" if gpus != drill.gpus and drill.says[:1].isdigit() else text(_SIZE.sub("", drill.says))
    return replace(
        drill,
        environment=environment,
        subject=text(drill.subject),
        says=says,
        also=pairs(drill.also),
        consequences=pairs(drill.consequences),
        silent=tuple(text(subject) for subject in drill.silent),
    )


def why_not(drill: Drill, profile: Profile, nodes: int, gpus: int) -> str | None:
    """Why the drill would mean nothing on this cluster; None when it would."""
    if drill.where != "anywhere":
        return "it changes the cluster itself: on a local cluster only"
    if nodes < drill.nodes:
        return f"it needs {drill.nodes} nodes, {nodes} can be used"
    if gpus < 2 and (
        drill.gpus > 1 and "rank" in f"{drill.subject} {dict(drill.environment).get('BRINGUP_DRILL', '')}"
    ):
        return f"it tells two ranks of one node apart, and the nodes have {gpus} GPU"
    excluded = profile.reason_not_applicable(drill.gate)
    if excluded is not None:
        return f"profile {profile.name}: {drill.gate} is not applicable: {excluded}"
    if isinstance(GATES[drill.gate].expect, FromProfile) and drill.gate not in profile.expect:
        return f"profile {profile.name} declares no {drill.gate}"
    if drill.needs_expected is not None:
        gate, pattern = drill.needs_expected
        entry = profile.expect.get(gate)
        if entry is None or not re.search(pattern, str(entry.expected)):
            return f"profile {profile.name} expects {'nothing' if entry is None else entry.expected} of {gate}, not {pattern}"
    return None
