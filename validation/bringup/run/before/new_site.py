"""`bringup site --init`: a first site file from what Slurm says, with each assumption in words."""

import re
from pathlib import Path
from typing import NamedTuple

from bringup.kernel.errors import CannotStart, UsageError
from bringup.kernel.facts.names import the_first
from bringup.kernel.plan.profile import PROFILES, SITE_SUFFIX
from bringup.readers.node_states import Node
from bringup.run import site_file as sites
from bringup.run import slurm
from bringup.run.before.cluster import Cluster
from bringup.run.nodes import MIG, most_common
from bringup.run.partitions import Partition

TO_ADD = """
# What Slurm cannot say; docs/site-file.md has every key:
# checkpoints: /shared/checkpoints        a folder that all nodes share
# scratch: /scratch                       a fast folder
# environment: {NCCL_SOCKET_IFNAME: "eth0"}
"""


class NewSite(NamedTuple):
    site: sites.Site
    assumed: list[str]  # a line each


def suggest(cluster: Cluster, name: str | None = None) -> NewSite:
    """Suggest a site. Raises CannotStart where no partition has GPUs."""
    assumed: list[str] = []
    partition = _partition(cluster, assumed)
    nodes = cluster.nodes_of([partition])
    if (usual := most_common(nodes)) is None:
        raise CannotStart(f"partition {partition.name} has no GPU: Slurm says Gres=(null) for {the_first(list(nodes))}")
    request = _request(usual, nodes, assumed)
    whole = "every job of a phase asks for whole nodes by itself (--exclusive)"
    assumed.append(f"OverSubscribe={partition.sharing}: {whole}")
    account = _account(cluster, partition, assumed)
    site = sites.Site(
        schema_version=1,
        name=name or re.sub(r"[^\w.-]", "-", cluster.name or "") or "here",
        partition=partition.name,
        account=account,
        qos=_qos(cluster, partition, account, assumed),
        gpu_request=request,
    )
    return NewSite(site, assumed)


def _partition(cluster: Cluster, assumed: list[str]) -> Partition:
    """Return the one that the environment names, or the default one, or else that with the most GPU nodes."""
    named = slurm.chosen_partition()
    with_gpus = {
        partition.name: sum(node.gpus > 0 for node in cluster.nodes_of([partition]).values())
        for partition in cluster.partitions
        # whether it takes jobs of an account of this user, as far as that is known
        if cluster.accounts is None or not partition.accounts or cluster.accounts_for(partition)
    }
    for partition in cluster.named(named):
        if named or with_gpus.get(partition.name):
            why = f"SBATCH_PARTITION says {named}" if named else "it is the default one, and has GPUs"
            assumed.append(f"partition {partition.name}: {why}")
            return partition
    if named:
        raise CannotStart(f"there is no partition {named}; there are {', '.join(p.name for p in cluster.partitions)}")
    best = max(cluster.partitions, key=lambda partition: with_gpus.get(partition.name, 0), default=None)
    if best is None or not with_gpus.get(best.name):
        raise CannotStart("Slurm has no partition with GPUs (Gres=gpu:N) that takes your jobs; ask the administrator")
    others = [name for name, number in with_gpus.items() if number and name != best.name]
    also = f"; others with GPUs: {', '.join(others)}" if others else ""
    why = "the default one has no GPU for you, and this one has the most nodes with GPUs"
    assumed.append(f"partition {best.name}: {why}{also}")
    return best


def _request(usual: Node, nodes: dict[str, Node], assumed: list[str]) -> str:
    """With a type only where the partition has several: the name of a type changes with gres.conf."""
    types = {kind for node in nodes.values() for kind in node.types}
    others = [name for name, node in nodes.items() if node.gres != usual.gres]
    also = "; other nodes differ, and a run leaves them aside unless --nodelist names them: "
    request, why = f"--gpus-per-node={usual.gpus}", f"most nodes have Gres={usual.gres}"
    if any(MIG.search(kind) for kind in usual.types):
        request, why = "none", f"GPUs are divided (MIG) in {usual.gres}; write what a whole node has"
    elif len(types) > 1 and len(usual.types) == 1:
        request = f"--gres=gpu:{usual.types[0]}:{usual.gpus}"
        why = f"the partition has several types of GPU ({', '.join(sorted(types))})"
    assumed.append(f"gpu_request {request}: {why}" + (f"{also}{the_first(others)}" if others else ""))
    return request


def _account(cluster: Cluster, partition: Partition, assumed: list[str]) -> str | None:
    mine = cluster.accounts_for(partition)
    if not mine:
        why = "sacctmgr names none of yours for this partition"
        why = "nothing keeps accounts here, or sacctmgr gave no answer" if cluster.accounts is None else why
        assumed.append(f"account: left out, {why}")
        return None
    chosen = cluster.default_account if cluster.default_account in mine else mine[0]
    which = "your only one" if len(mine) == 1 else f"your default one, or the first of {', '.join(mine)}"
    assumed.append(f"account {chosen}: {which}")
    return chosen


def _qos(cluster: Cluster, partition: Partition, account: str | None, assumed: list[str]) -> str | None:
    """Only where the partition does not take the user's default one."""
    mine = [each for each in cluster.accounts or () if each.name == account and each.partition in ("", partition.name)]
    accepted = {name.lower() for name in partition.qos}
    if not accepted or not mine or mine[0].default_qos.lower() in accepted:
        return None
    fit = next((name for each in mine for name in each.qos if name.lower() in accepted), None)
    if fit is None:
        takes = f"the partition takes {', '.join(partition.qos)}"
        assumed.append(f"qos: left out; {takes}, and sacctmgr names none of these for you")
    else:
        assumed.append(f"qos {fit}: the partition does not take your default one")
    return fit


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
