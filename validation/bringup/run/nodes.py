"""Which nodes a run is about."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable

from bringup.errors import CannotStart, SlurmError, UsageError
from bringup.evidence import hostlist
from bringup.plan.phases import Phase
from bringup.run import partitions, slurm


def requested_nodes(count: int | None, nodelist: str | None, partition: str | None = None) -> dict[str, slurm.Node]:
    """Of the list, else of the partition. With a count: the first usable ones, then unusable ones.

    partition: another one than the environment chooses. In the order of Slurm's own table, in whatever order they were
    listed: Slurm places rank 0 on the first one there.
    """
    names = hostlist.expand(nodelist) if nodelist else slurm.partition_nodes(partition or slurm.chosen_partition())
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


def refuse_without_gpus(nodes: dict[str, slurm.Node]) -> None:
    """Raises UsageError."""
    if all(node.gpus == 0 for node in nodes.values()):
        names = ",".join(nodes)
        raise UsageError(
            f"Slurm has no GPU configured on {names}; is Gres=gpu:N in slurm.conf? (scontrol show node "
            f"{names.split(',')[0]}) Or name the partition with GPUs, in the site file or as SBATCH_PARTITION"
        )


def known_partitions() -> list[partitions.Partition]:
    """Empty where Slurm gives no answer: then Slurm itself refuses the job, or keeps it pending."""
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
    """`NODES=n0,n1`, quoted: one call of Python, and one look at the nodes. Raises a BringupError.

    sharing: also WHOLE_NODES=yes where no two jobs share a node. phase: whose job the partition has to take.
    """
    nodes = slurm.patiently(lambda: requested_nodes(count, nodelist), tell)
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
        whole = slurm.patiently(lambda: slurm.gives_whole_nodes(slurm.chosen_partition()), tell)
        assignments |= {"WHOLE_NODES": "yes" if whole else "no"}
    return [f"{name}={shlex.quote(str(value))}" for name, value in assignments.items()]
