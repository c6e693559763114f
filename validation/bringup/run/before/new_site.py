"""`bringup site --init`: a first site file from what Slurm says, with each assumption in words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bringup.errors import CannotStart, UsageError
from bringup.evidence.names import the_first
from bringup.plan import site as sites
from bringup.plan.profile import PROFILES, SITE_SUFFIX
from bringup.plan.site import Site
from bringup.run import slurm
from bringup.run.before.cluster import Cluster, most_common
from bringup.run.nodes import MIG
from bringup.run.partitions import Partition
from bringup.run.slurm import Node

TO_ADD = """
# What Slurm cannot say; docs/site-file.md has every key:
# checkpoints: /shared/checkpoints        a folder that all nodes share
# scratch: /scratch                       a fast folder
# environment: {NCCL_SOCKET_IFNAME: "eth0"}
"""


@dataclass(frozen=True)
class NewSite:
    site: Site
    assumed: Sequence[str]  # a line each


def suggest(cluster: Cluster, name: str | None = None) -> NewSite:
    """Suggest a site. Raises CannotStart where no partition has GPUs."""
    partition, why_partition = _partition(cluster)
    nodes = cluster.nodes_of([partition])
    usual = most_common(nodes)
    if usual is None:
        raise CannotStart(f"partition {partition.name} has no GPU: Slurm says Gres=(null) for {the_first(list(nodes))}")
    request, why_request = _request(usual, nodes)
    account, why_account = _account(cluster, partition)
    qos, why_qos = _qos(cluster, partition, account)
    site = Site(
        schema_version=1,
        name=name or re.sub(r"[^\w.-]", "-", cluster.name or "") or "here",
        partition=partition.name,
        account=account,
        qos=qos,
        gpu_request=request,
    )
    whole = f"OverSubscribe={partition.sharing}: every job of a phase asks for whole nodes by itself (--exclusive)"
    return NewSite(site, [why_partition, why_request, whole, why_account, *([why_qos] if why_qos else [])])


def _partition(cluster: Cluster) -> tuple[Partition, str]:
    """Return the one that the environment names, or the default one, or else that with the most GPU nodes."""
    named = slurm.chosen_partition()
    for partition in cluster.named(named):
        if named or (most_common(cluster.nodes_of([partition])) is not None and _is_open(cluster, partition)):
            reason = f"SBATCH_PARTITION says {named}" if named else "it is the default one, and has GPUs"
            return partition, f"partition {partition.name}: {reason}"
    if named:
        raise CannotStart(f"there is no partition {named}; there are {', '.join(p.name for p in cluster.partitions)}")
    counted = {
        partition.name: sum(node.gpus > 0 for node in cluster.nodes_of([partition]).values())
        for partition in cluster.partitions
        if _is_open(cluster, partition)
    }
    usable = [partition for partition in cluster.partitions if counted.get(partition.name)]
    best = max(usable, key=lambda partition: counted[partition.name], default=None)
    if best is None:
        raise CannotStart("Slurm has no partition with GPUs (Gres=gpu:N) that takes your jobs; ask the administrator")
    others = [name for name, number in counted.items() if number and name != best.name]
    also = f"; others with GPUs: {', '.join(others)}" if others else ""
    return (
        best,
        f"partition {best.name}: the default one has no GPU for you, and this one has the most nodes with GPUs{also}",
    )


def _is_open(cluster: Cluster, partition: Partition) -> bool:
    """Whether it takes jobs of an account of this user, as far as that is known."""
    return cluster.accounts is None or not partition.accounts or bool(cluster.accounts_for(partition))


def _request(usual: Node, nodes: dict[str, Node]) -> tuple[str, str]:
    """With a type only where the partition has several: the name of a type changes with gres.conf."""
    types = {kind for node in nodes.values() for kind in node.types}
    others = [name for name, node in nodes.items() if node.gres != usual.gres]
    also = (
        f"; other nodes differ, and a run leaves them aside unless --nodelist names them: {the_first(others)}"
        if others
        else ""
    )
    if any(MIG.search(kind) for kind in usual.types):
        return "none", f"gpu_request none: GPUs are divided (MIG) in {usual.gres}; write what a whole node has{also}"
    if len(types) > 1 and len(usual.types) == 1:
        request = f"--gres=gpu:{usual.types[0]}:{usual.gpus}"
        return (
            request,
            f"gpu_request {request}: the partition has several types of GPU ({', '.join(sorted(types))}){also}",
        )
    request = f"--gpus-per-node={usual.gpus}"
    return request, f"gpu_request {request}: most nodes have Gres={usual.gres}{also}"


def _account(cluster: Cluster, partition: Partition) -> tuple[str | None, str]:
    if cluster.accounts is None:
        return None, "account: left out, nothing keeps accounts here, or sacctmgr gave no answer"
    mine = cluster.accounts_for(partition)
    if not mine:
        return None, "account: left out, sacctmgr names none of yours for this partition"
    chosen = cluster.default_account if cluster.default_account in mine else mine[0]
    which = "your only one" if len(mine) == 1 else f"your default one, or the first of {', '.join(mine)}"
    return chosen, f"account {chosen}: {which}"


def _qos(cluster: Cluster, partition: Partition, account: str | None) -> tuple[str | None, str | None]:
    """Only where the partition does not take the user's default one."""
    mine = [each for each in cluster.accounts or () if each.name == account and each.partition in ("", partition.name)]
    if not partition.qos or not mine:
        return None, None
    accepted = {name.lower() for name in partition.qos}
    if mine[0].default_qos.lower() in accepted:
        return None, None
    fit = [name for each in mine for name in each.qos if name.lower() in accepted]
    if not fit:
        return (
            None,
            f"qos: left out; the partition takes {', '.join(partition.qos)}, and sacctmgr names none of these for you",
        )
    return fit[0], f"qos {fit[0]}: the partition does not take your default one"


def write(new: NewSite, named: str | None) -> Path:
    """Write the files. named: a .yaml file; otherwise it lies beside the profiles. Raises UsageError if it exists."""
    path = Path(named) if named and named.endswith((".yaml", ".yml")) else PROFILES / f"{new.site.name}{SITE_SUFFIX}"
    comments = "".join(f"# {line}\n" for line in new.assumed)
    text = f"# Made by bringup site --init from what Slurm said. It assumed:\n{comments}{sites.dump(new.site)}{TO_ADD}"
    sites.parse(text, str(path))
    try:
        with path.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError as error:
        raise UsageError(f"{path} is there already, and is not overwritten; give another name or path") from error
    return path
