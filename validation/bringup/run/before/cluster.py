"""What Slurm says without a job: partitions, nodes, settings, accounts."""

import getpass
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bringup.kernel.errors import SlurmError
from bringup.readers.node_states import Node
from bringup.run import partitions, slurm
from bringup.run.partitions import Partition

Ask = Callable[..., str]  # a Slurm command -> its standard output. Raises SlurmError

_SETTING = re.compile(r"^(\w+)(?:\[\d+\])?\s*=\s*(.*?)\s*$", re.MULTILINE)
_ACCOUNT_FIELDS = "Account,Partition,QOS,DefaultQOS,MaxSubmitJobs"
SUBMITTED, AT_ONCE, GPUS, NODES = "jobs submitted", "jobs at once", "GPUs", "nodes"
_QOS_FIELDS = {"MaxSubmitJobsPerUser": SUBMITTED, "MaxJobsPerUser": AT_ONCE}  # the others are lists of TRES
_QOS_FORMAT = ",".join(["Name", *_QOS_FIELDS, "MaxTRESPerUser", "MaxTRES", "GrpTRES"])
_TRES = {"gres/gpu": GPUS, "node": NODES}


class Account(NamedTuple):
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
    qos: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # name -> its limits; what has none is left out

    @property
    def name(self) -> str | None:
        return self.settings.get("ClusterName")

    def named(self, names: str | None) -> list[Partition]:
        """Find the partitions of `a,b`; None: the default one."""
        wanted = partitions.requested(names, self.partitions)
        return [partition for partition in self.partitions if partition.name in wanted]

    def accounts_for(self, partition: Partition) -> list[str]:
        """Name accounts of this user whose jobs the partition takes."""
        mine = {each.name for each in self.accounts or () if each.partition in ("", partition.name)}
        return sorted(mine & set(partition.accounts) if partition.accounts else mine)

    def limits(self, account: str, qos: str | None, chosen: Sequence[Partition]) -> list[tuple[str, str, int]]:
        """Return (words, what, the most) of each limit of jobs of this account. qos: None: the account's own."""
        mine = [each for each in self.accounts or () if each.name == account]
        names = [qos or next((each.default_qos for each in mine), ""), *(partition.own_qos for partition in chosen)]
        all_of = {f"QOS {name}": self.qos.get(name, {}) for name in names}
        all_of |= {f"account {account}": {SUBMITTED: each.most_jobs} for each in mine if each.most_jobs is not None}
        named = ((whose, what, most) for whose, limits in all_of.items() for what, most in limits.items())
        return [(f"{whose}, {what}: at most {most}", what, most) for whose, what, most in named]

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


def read(ask: Ask = slurm.ask) -> Cluster:
    """Read the cluster, and submit nothing. Raises SlurmError if Slurm does not answer."""
    version = ask("scontrol", "--version").split()
    settings = dict(_SETTING.findall(ask("scontrol", "show", "config")))
    try:
        default, accounts, qos = _accounts(ask)
    except SlurmError:  # no slurmdbd, or no sacctmgr here
        default, accounts, qos = None, None, {}
    return Cluster(
        version=version[-1] if version else "of no known version",
        settings=settings,
        partitions=partitions.read(ask("scontrol", "--all", "--oneliner", "show", "partition")),
        nodes=slurm.nodes_in(ask("scontrol", "--oneliner", "show", "node")),
        accounts=accounts,
        default_account=default,
        qos=qos,
    )


def _accounts(ask: Ask) -> tuple[str | None, list[Account], dict[str, dict[str, int]]]:
    """Read the accounts, and the limits of every QOS. Raises SlurmError."""
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
    qos = (row.split("|") for row in ask(*tables, "qos", f"format={_QOS_FORMAT}").splitlines())
    return (default[0] if default else None), accounts, {cells[0]: _limits(cells[1:]) for cells in qos}


def _limits(cells: Sequence[str]) -> dict[str, int]:
    """Read the numbers of _QOS_FIELDS, then lists as `cpu=64,gres/gpu=8,node=2`: of each the least."""
    words = [f"{name}={cell}" for name, cell in zip(_QOS_FIELDS, cells, strict=False)]
    words += [word for cell in cells[len(_QOS_FIELDS) :] for word in cell.split(",")]
    limits: dict[str, int] = {}
    for name, _, number in (word.partition("=") for word in words):
        what = (_QOS_FIELDS | _TRES).get(name)
        if what is not None and number.isdecimal():
            limits[what] = min(int(number), limits.get(what, int(number)))
    return limits
