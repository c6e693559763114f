"""What the phase scripts ask: which nodes, which numbers of nodes, which pairs. Lines for the shell."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path

from bringup import judge
from bringup.checks.nccl import pairs
from bringup.errors import SlurmError, UsageError
from bringup.plan import rounds, subjects
from bringup.run import open as opening
from bringup.run import playbook, slurm


def node_assignments(count: int | None, nodelist: str | None, tell: Callable[[str], None]) -> list[str]:
    """`NODES=n0,n1`, quoted: one call of Python, and one look at the nodes. Raises UsageError or SlurmError."""
    nodes = slurm.patiently(lambda: playbook.requested_nodes(count, nodelist), tell)
    gpus, usable = max(node.gpus for node in nodes.values()), [name for name in nodes if nodes[name].is_usable]
    names = ",".join(nodes)
    if gpus == 0:
        raise UsageError(
            f"Slurm has no GPU configured on {names}; is Gres=gpu:N in slurm.conf? "
            f"(scontrol show node {names.split(',')[0]})"
        )
    if not usable:
        raise SlurmError(f"none of {names} is usable; sinfo -N -l says why")
    assignments = {"NODES": names, "NODE_COUNT": len(nodes), "GPUS": gpus}
    assignments |= {"USABLE": ",".join(usable), "USABLE_COUNT": len(usable)}
    return [f"{name}={shlex.quote(str(value))}" for name, value in assignments.items()]


def scales(nodes: list[str], gpus_per_node: int, whole: bool) -> list[str]:
    """A scale per line: ending of its files' names, name, number of nodes, ranks per node, nodes (n0,n1).

    whole: that of all nodes alone.
    """
    found = [subjects.full_scale(len(nodes), gpus_per_node)] if whole else subjects.scales(len(nodes), gpus_per_node)
    return [
        f"{subjects.file_suffix(scale)} {scale.name} {scale.nodes} {scale.ranks // scale.nodes} "
        + ",".join(nodes[: scale.nodes])
        for scale in found
    ]


def pairs_again(run: Path) -> list[str]:
    """Rounds of the pairs of this run that should be measured once more."""
    suspects = pairs.suspects(judge.judge_folder(run).observations)
    return [rounds.say(met) for met in rounds.in_rounds(suspects)]


def pair_rounds(nodes: list[str], here: set[str]) -> tuple[list[str], str]:
    """(a round per line, what is not exercised). here: nodes that are there now; pairs with others are left out."""
    planned = rounds.rounds(nodes, subjects.pair_rounds(nodes, opening.asked_pair_rounds()))
    played = [[pair for pair in met if here.issuperset(pair)] for met in planned]
    exercised, possible = sum(map(len, played)), len(nodes) * (len(nodes) - 1) // 2
    why = "BRINGUP_PAIR_ROUNDS=all measures every pair"
    if not here.issuperset(nodes):
        why = f"not there: {', '.join(sorted(set(nodes) - here))}"
    counted = f"{len(planned)} round(s), {exercised} of {possible} pairs"
    return [rounds.say(met) for met in played], f"{counted}; not exercised: {possible - exercised} ({why})"
