"""Chooses the nodes of a run: those with as many GPUs of one type, and the features of the site."""

import contextlib
import os
import re
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from bringup.kernel.errors import CannotStart, SlurmError, UsageError
from bringup.kernel.facts import hostlist
from bringup.kernel.facts.names import by_reason
from bringup.kernel.plan.phases import Phase
from bringup.readers.node_states import Node
from bringup.run import partitions, slurm


def requested_nodes(
    count: int | None, nodelist: str | None, partition: str | None = None, say: Callable[[str], None] = lambda _: None
) -> dict[str, Node]:
    """Choose nodes of the list, or else of the partition. With a count: usable nodes first, then unusable ones. Of a
    partition only nodes that are alike (set_aside); say: gets a line about the others.

    partition: overrides the environment's. The result is in the order of Slurm's table, not of the list: Slurm places
    rank 0 on the first node of its table.
    """
    names = hostlist.expand(nodelist) if nodelist else slurm.partition_nodes(partition or slurm.chosen_partition())
    known = slurm.nodes()
    if unknown := [name for name in names if name not in known]:
        raise CannotStart(f"Slurm knows no node {', '.join(unknown[:8])}; it knows {', '.join(sorted(known)[:8])}")
    listed = set(names)
    names = [name for name in known if name in listed]
    if nodelist and len(kinds := {kind(known[name]): name for name in names}) > 1:
        differ = ", ".join(f"{node} with {gpus}" for gpus, node in kinds.items())
        why = f"a run takes nodes with the same GPUs, and these differ: {differ}"
        raise CannotStart(f"--nodelist: {why}; name one kind")
    if not nodelist and (aside := set_aside(known, names)):
        names = [name for name in names if name not in aside]
        taken = kind(known[names[0]])
        say(f"left aside: {by_reason(aside)}; the run takes {taken} (--nodelist names others)")
    if count is not None and not 1 <= count <= len(names):
        raise CannotStart(f"--nodes {count}: there are {len(names)} nodes ({', '.join(names[:8])})")
    usable_first = sorted(names, key=lambda name: not known[name].is_usable)
    chosen = set(usable_first[:count])
    if down := {name: known[name].state for name in names if name not in chosen and not known[name].is_usable}:
        say(f"not taken: {by_reason(down)}")
    taken_nodes = {name: known[name] for name in names if name in chosen}
    if all(node.gpus == 0 for node in taken_nodes.values()):
        none = f"Slurm has no GPU configured on {hostlist.shortened(list(taken_nodes))}; is Gres=gpu:N in slurm.conf?"
        cure = "Or name the partition with GPUs, in the site file or as SBATCH_PARTITION"
        raise UsageError(f"{none} (scontrol show node {next(iter(taken_nodes))}) {cure}")
    if (words := divided(taken_nodes)) is not None:
        say(words)
    return taken_nodes


def known_partitions() -> list[partitions.Partition]:
    """Read all partitions. Empty if Slurm does not answer: Slurm then refuses the job itself, or keeps it pending."""
    with contextlib.suppress(SlurmError):
        return partitions.read(slurm.show_partitions())
    return []


def node_assignments(
    count: int | None, nodelist: str | None, tell: Callable[[str], None], sharing: bool, phase: Phase | None
) -> list[str]:
    """Write lines for a script, `NODES=n[0-3]`, quoted, from a single look at the nodes. Raises a BringupError.

    sharing: also WHOLE_NODES=yes if no two jobs share a node. phase: the partition must accept its job.
    """
    nodes = slurm.patiently(lambda: requested_nodes(count, nodelist, None, tell), tell)
    gpus, usable = max(node.gpus for node in nodes.values()), [name for name in nodes if nodes[name].is_usable]
    names = hostlist.shortened(list(nodes))
    if not usable:
        raise SlurmError(f"none of {names} is usable; sinfo -N -l says why")
    if phase is not None and (known := known_partitions()):
        partitions.refuse(phase, list(nodes), os.environ, known)
    assignments = {"NODES": names, "NODE_COUNT": len(nodes), "GPUS": gpus}
    assignments |= {"USABLE": hostlist.shortened(usable), "USABLE_COUNT": len(usable)}
    if sharing:
        shown = slurm.patiently(slurm.show_partitions, tell)
        share = partitions.share_nodes(slurm.chosen_partition(), partitions.read(shown))
        assignments |= {"WHOLE_NODES": "no" if share else "yes"}
    return [f"{name}={shlex.quote(str(value))}" for name, value in assignments.items()]


NO_GPU = "no GPU"
MIG = re.compile(r"\d+g\.\d+gb")  # a part of a GPU, as Gres types are usually called: 1g.10gb


def set_aside(known: Mapping[str, Node], names: Sequence[str]) -> dict[str, str]:
    """Return node of `names` -> why a run does not take it by itself: it lacks features that jobs ask for (the site
    file's constraint), or other nodes are more common. Of two equally common kinds, the one with more GPUs is taken.
    """
    wanted = constraint()
    groups = [set(re.split("[&,]", group)) for group in wanted.split("|")]  # all of one of them
    lacking = [name for name in names if not any(group.issubset(known[name].features) for group in groups)]
    aside = dict.fromkeys(lacking if wanted else (), f"not {wanted}")
    if len(aside) == len(names):  # Slurm refuses such a job, and says why
        aside = {}
    usual = most_common({name: known[name] for name in names if name not in aside})
    if usual is None:
        return {}
    others = {name: kind(known[name]) for name in names if kind(known[name]) != kind(usual)} | aside
    return {name: others[name] for name in names if name in others}


def most_common(nodes: Mapping[str, Node]) -> Node | None:
    """Find a node with GPUs as most of those with GPUs have them. None: no node has one."""
    with_gpus = [node for node in nodes.values() if node.gpus]
    counted = Counter(node.gres for node in with_gpus)
    return max(with_gpus, key=lambda node: (counted[node.gres], node.gpus), default=None)


def kind(node: Node) -> str:
    return node.gres or NO_GPU


def divided(nodes: Mapping[str, Node]) -> str | None:
    """Say in a line what it means for a run that these nodes have parts of GPUs (MIG). None: they have none."""
    of_parts = {name: kind(node) for name, node in nodes.items() if MIG.search(node.gres or "")}
    if not of_parts:
        return None
    counts = f"GPUs are divided (MIG), and Slurm counts the parts: {by_reason(of_parts)}"
    why = "ranks on parts of a GPU have neither NVLink nor NCCL between them"
    return f"{counts}; discovery fails there, because {why}"


def constraint() -> str:
    """Return the features that jobs ask for. Alternatives with counts ([a*2&b*4]) are left to Slurm."""
    wanted = os.environ.get("SBATCH_CONSTRAINT") or os.environ.get("SLURM_CONSTRAINT") or ""
    return wanted if re.fullmatch(r"[\w.:=+-]+([&|,][\w.:=+-]+)*", wanted) else ""
