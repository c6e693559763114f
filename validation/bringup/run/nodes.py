"""Chooses the nodes of a run."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable

from bringup.errors import CannotStart, SlurmError, UsageError
from bringup.evidence import hostlist
from bringup.plan.phases import Phase
from bringup.run import kinds, partitions, slurm


def requested_nodes(
    count: int | None,
    nodelist: str | None,
    partition: str | None = None,
    say: Callable[[str], None] = lambda text: None,
) -> dict[str, slurm.Node]:
    """Nodes of the list, or else of the partition. With a count: usable nodes first, then unusable ones. Of a partition
    only nodes that are alike (run/kinds.py); say: gets a line about the others.

    partition: overrides the environment's. The result is in the order of Slurm's table, not of the list: Slurm places
    rank 0 on the first node of its table.
    """
    names = hostlist.expand(nodelist) if nodelist else slurm.partition_nodes(partition or slurm.chosen_partition())
    known = slurm.nodes()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CannotStart(f"Slurm knows no node {', '.join(unknown[:8])}; it knows {', '.join(sorted(known)[:8])}")
    listed = set(names)
    names = [name for name in known if name in listed]
    if not nodelist and (aside := kinds.set_aside(known, names)):
        names = [name for name in names if name not in aside]
        taken = kinds.kind(known[names[0]])
        say(f"left aside: {kinds.in_words(aside)}; the run takes {taken} (--nodelist names others)")
    if count is not None and not 1 <= count <= len(names):
        raise CannotStart(f"--nodes {count}: there are {len(names)} nodes ({', '.join(names[:8])})")
    usable_first = sorted(names, key=lambda name: not known[name].is_usable)
    chosen = set(usable_first[:count])
    taken_nodes = {name: known[name] for name in names if name in chosen}
    if (words := kinds.divided(taken_nodes)) is not None:
        say(words)
    return taken_nodes


def refuse_without_gpus(nodes: dict[str, slurm.Node]) -> None:
    """Raises UsageError."""
    if all(node.gpus == 0 for node in nodes.values()):
        names = ",".join(nodes)
        raise UsageError(
            f"Slurm has no GPU configured on {names}; is Gres=gpu:N in slurm.conf? (scontrol show node "
            f"{names.split(',')[0]}) Or name the partition with GPUs, in the site file or as SBATCH_PARTITION"
        )


def known_partitions() -> list[partitions.Partition]:
    """All partitions. Empty if Slurm does not answer: Slurm then refuses the job itself, or keeps it pending."""
    with contextlib.suppress(SlurmError):
        return partitions.read(slurm.show_partitions())
    return []


def node_assignments(
    count: int | None,
    nodelist: str | None,
    tell: Callable[[str], None],
    sharing: bool = False,
    phase: Phase | None = None,
) -> list[str]:
    """Lines for a script, `NODES=n0,n1`, quoted, from a single look at the nodes. Raises a BringupError.

    sharing: also WHOLE_NODES=yes if no two jobs share a node. phase: the partition must accept its job.
    """
    nodes = slurm.patiently(lambda: requested_nodes(count, nodelist, None, tell), tell)
    gpus, usable = max(node.gpus for node in nodes.values()), [name for name in nodes if nodes[name].is_usable]
    names = ",".join(nodes)
    refuse_without_gpus(nodes)
    if not usable:
        raise SlurmError(f"none of {names} is usable; sinfo -N -l says why")
    if phase is not None and (known := known_partitions()):
        partitions.refuse(phase, list(nodes), os.environ, known)
    assignments = {"NODES": names, "NODE_COUNT": len(nodes), "GPUS": gpus}
    assignments |= {"USABLE": ",".join(usable), "USABLE_COUNT": len(usable)}
    if sharing:
        shown = slurm.patiently(slurm.show_partitions, tell)
        share = partitions.share_nodes(slurm.chosen_partition(), partitions.read(shown))
        assignments |= {"WHOLE_NODES": "no" if share else "yes"}
    return [f"{name}={shlex.quote(str(value))}" for name, value in assignments.items()]
