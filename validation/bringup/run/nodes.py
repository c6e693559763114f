"""Which nodes a run is about."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from bringup.errors import CannotStart, SlurmError, UsageError
from bringup.evidence import hostlist
from bringup.run import slurm


def requested_nodes(count: int | None, nodelist: str | None) -> dict[str, slurm.Node]:
    """Of the list, else of the partition. With a count: the first usable ones, then unusable ones.

    In the order of Slurm's own table, in whatever order they were listed: Slurm places rank 0 on the first one there.
    """
    names = hostlist.expand(nodelist) if nodelist else slurm.partition_nodes(slurm.chosen_partition())
    known = slurm.nodes()
    unknown = [name for name in names if name not in known]
    if unknown:
        raise CannotStart(f"Slurm knows no node {', '.join(unknown[:8])}; it knows {', '.join(sorted(known)[:8])}")
    listed = set(names)
    names = [name for name in known if name in listed]
    if count is not None and not 1 <= count <= len(names):
        raise CannotStart(f"--nodes {count}: there are {len(names)} nodes ({', '.join(names[:8])})")
    usable_first = sorted(names, key=lambda name: not known[name].is_usable)
    chosen = set(usable_first[:count])
    return {name: known[name] for name in names if name in chosen}


def node_assignments(
    count: int | None, nodelist: str | None, tell: Callable[[str], None], sharing: bool = False
) -> list[str]:
    """`NODES=n0,n1`, quoted: one call of Python, and one look at the nodes. Raises UsageError or SlurmError.

    sharing: also WHOLE_NODES=yes where no two jobs share a node.
    """
    nodes = slurm.patiently(lambda: requested_nodes(count, nodelist), tell)
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
    if sharing:
        whole = slurm.patiently(lambda: slurm.gives_whole_nodes(slurm.chosen_partition()), tell)
        assignments |= {"WHOLE_NODES": "yes" if whole else "no"}
    return [f"{name}={shlex.quote(str(value))}" for name, value in assignments.items()]
