"""What Slurm says without a job: partitions, nodes, settings, accounts."""

from __future__ import annotations

import getpass
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bringup.errors import SlurmError
from bringup.run import partitions, slurm
from bringup.run.partitions import Partition
from bringup.run.slurm import Node

Ask = Callable[..., str]  # a Slurm command -> its standard output. Raises SlurmError

_SETTING = re.compile(r"^(\w+)(?:\[\d+\])?\s*=\s*(.*?)\s*$", re.MULTILINE)
_ACCOUNT_FIELDS = "Account,Partition,QOS,DefaultQOS,MaxSubmitJobs"


@dataclass(frozen=True)
class Account:
    """One association of this user."""

    name: str
    partition: str  # empty: all
    qos: tuple[str, ...]
    default_qos: str
    most_jobs: int | None  # MaxSubmitJobs; None: no limit


@dataclass(frozen=True)
class Cluster:
    version: str
    settings: Mapping[str, str]  # scontrol show config
    partitions: Sequence[Partition]
    nodes: Mapping[str, Node]
    accounts: Sequence[Account] | None  # None: nothing keeps accounts, or it gave no answer
    default_account: str | None

    @property
    def name(self) -> str | None:
        return self.settings.get("ClusterName")

    def named(self, names: str | None) -> list[Partition]:
        """Find the partitions of `a,b`; None: the default one."""
        if names is None:
            return [partition for partition in self.partitions if partition.is_default]
        return [partition for partition in self.partitions if partition.name in names.split(",")]

    def accounts_for(self, partition: Partition) -> list[str]:
        """Name accounts of this user whose jobs the partition takes."""
        mine = {each.name for each in self.accounts or () if each.partition in ("", partition.name)}
        return sorted(mine & set(partition.accounts) if partition.accounts else mine)

    def nodes_of(self, chosen: Sequence[Partition]) -> dict[str, Node]:
        held = frozenset[str]().union(*(partition.nodes for partition in chosen))
        return {name: node for name, node in self.nodes.items() if name in held}

    def propagated(self, limit: str) -> bool | None:
        """Say whether a job gets this limit (NOFILE, MEMLOCK) of the submitting shell. None: Slurm does not say."""
        listed = self.settings.get("PropagateResourceLimits")
        excluded = self.settings.get("PropagateResourceLimitsExcept", "")
        if limit in excluded.upper().split(","):
            return False
        return None if listed is None else listed.upper() == "ALL" or limit in listed.upper().split(",")


def most_common(nodes: Mapping[str, Node]) -> Node | None:
    """Find a node with GPUs as most of those with GPUs have them. None: no node has one."""
    with_gpus = [node for node in nodes.values() if node.gpus]
    counted = Counter(node.gres for node in with_gpus)
    return max(with_gpus, key=lambda node: (counted[node.gres], node.gpus), default=None)


def read(ask: Ask = slurm.ask) -> Cluster:
    """Read the cluster, and submit nothing. Raises SlurmError if Slurm does not answer."""
    version = ask("scontrol", "--version").split()
    settings = dict(_SETTING.findall(ask("scontrol", "show", "config")))
    try:
        default, accounts = _accounts(ask)
    except SlurmError:  # no slurmdbd, or no sacctmgr here
        default, accounts = None, None
    return Cluster(
        version=version[-1] if version else "of no known version",
        settings=settings,
        partitions=partitions.read(ask("scontrol", "--all", "--oneliner", "show", "partition")),
        nodes=slurm.nodes_in(ask("scontrol", "--oneliner", "show", "node")),
        accounts=accounts,
        default_account=default,
    )


def _accounts(ask: Ask) -> tuple[str | None, list[Account]]:
    """Read the accounts. Raises SlurmError."""
    me = os.environ.get("USER") or getpass.getuser()
    tables = ("sacctmgr", "--noheader", "--parsable2", "--readonly", "show")
    default = ask(*tables, "user", me, "format=DefaultAccount").split()
    rows = ask(*tables, "association", f"user={me}", f"format={_ACCOUNT_FIELDS}").splitlines()
    accounts = []
    for row in rows:
        cells = row.split("|")
        if len(cells) == 5 and cells[0]:
            most = int(cells[4]) if cells[4].isdecimal() else None
            accounts.append(Account(cells[0], cells[1], tuple(filter(None, cells[2].split(","))), cells[3], most))
    return (default[0] if default else None), accounts
