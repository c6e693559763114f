"""Limits of partitions: a phase that its partition would never start is refused before anything is submitted.

Slurm refuses such a job only if EnforcePartLimits is set. Otherwise it accepts the job and leaves it pending.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bringup.kernel.characters import many
from bringup.kernel.errors import CannotStart
from bringup.kernel.facts import hostlist
from bringup.kernel.facts.names import the_first
from bringup.kernel.plan.phases import Phase
from bringup.kernel.results import REPOSITORY

_UNLIMITED = ("UNLIMITED", "INFINITE", "NONE", "0", "(null)")
_SHOWN = 4
# the script's own limit, used if neither the site file nor the environment sets one
_OWN_LIMIT = re.compile(r"^#SBATCH --time=(\S+)|SALLOC_TIMELIMIT:-([^}]+)\}", re.MULTILINE)
_CLOSED = {"DOWN": "starts no job", "DRAIN": "takes no new job", "INACTIVE": "takes and starts no job"}


@dataclass(frozen=True)
class Partition:
    """A partition from `scontrol show partition`. None: no limit."""

    name: str
    is_default: bool
    nodes: frozenset[str]
    state: str
    minutes: float | None
    least_nodes: int
    most_nodes: int | None
    qos: tuple[str, ...]  # those it takes; empty: all
    shares_nodes: bool  # two jobs can run on one node
    sharing: str  # what Slurm says about that
    accounts: tuple[str, ...] = ()  # those whose jobs it takes; empty: all
    own_qos: str = ""  # whose limits hold for all its jobs


def read(text: str) -> list[Partition]:
    """Parse `scontrol --oneliner show partition`."""
    partitions = []
    for line in text.splitlines():
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" not in fields:
            continue
        nodes, most = fields.get("Nodes", ""), fields.get("MaxNodes", "UNLIMITED")
        exclusive = fields.get("Exclusive", "NO")  # Slurm 26.05 says OverSubscribe=NO beside it
        sharing = fields.get("OverSubscribe", "unknown")
        partitions.append(
            Partition(
                name=fields["PartitionName"],
                is_default=fields.get("Default") == "YES",
                nodes=frozenset(hostlist.expand(nodes) if nodes not in ("", "(null)") else ()),
                state=fields.get("State", "UP"),
                minutes=minutes(fields.get("MaxTime", "UNLIMITED")),
                least_nodes=int(least) if (least := fields.get("MinNodes", "")).isdecimal() else 0,
                most_nodes=int(most) if most.isdecimal() else None,
                qos=_listed(fields.get("AllowQos", "ALL")),
                # of one user (USER, or ExclusiveTopo before it), jobs share
                shares_nodes=sharing != "EXCLUSIVE" and exclusive not in ("NODE", "TOPO"),
                sharing=sharing if exclusive == "NO" else f"{sharing}, Exclusive={exclusive}",
                accounts=_listed(fields.get("AllowAccounts", "ALL")),
                own_qos=fields.get("QoS", ""),
            )
        )
    return partitions


def _listed(names: str) -> tuple[str, ...]:
    return () if names in ("ALL", "(null)") else tuple(names.split(","))


def minutes(limit: str) -> float | None:
    """Read Slurm's time limits: 90 (minutes), 30:00, 01:30:00, 1-12, 1-12:00:00. None: unlimited, or not a time."""
    if limit.upper() in _UNLIMITED:
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", limit)
    if match is None:
        return None
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[1] is not None or match[4] is not None:  # hours come first
        return days * 1440 + first * 60 + second + third / 60
    return first + second / 60


def requested_minutes(phase: Phase, environment: Mapping[str, str]) -> float | None:
    """Return the time limit that the job of a phase will request, in minutes. environment: of the phase."""
    if (limit := environment.get(f"{_command(phase)}_TIMELIMIT")) is None:
        own_limit = _OWN_LIMIT.search((REPOSITORY / phase.script).read_text(encoding="utf-8"))
        limit = None if own_limit is None else own_limit[1] or own_limit[2]
    return None if limit is None else minutes(limit)


def _command(phase: Phase) -> str:
    return "SBATCH" if phase.submit else "SALLOC"


def partition_of(phase: Phase, environment: Mapping[str, str]) -> str | None:
    """Name of the partition of a phase; None: the default one."""
    return environment.get(f"{_command(phase)}_PARTITION") or environment.get("SLURM_PARTITION")


def share_nodes(named: str | None, known: Sequence[Partition]) -> bool:
    """Say whether two jobs of these partitions (`a,b`; None: the default one) can run on one node."""
    names = requested(named, known)
    return all(partition.shares_nodes for partition in known if partition.name in names)


def requested(named: str | None, known: Sequence[Partition]) -> list[str]:
    return [partition.name for partition in known if partition.is_default] if named is None else named.split(",")


def refuse(phase: Phase, nodes: Sequence[str], environment: Mapping[str, str], known: Sequence[Partition]) -> None:
    """Raise CannotStart if no partition that the phase is submitted to accepts its job.

    nodes: of the run. environment: of the phase.
    """
    reasons, by_name = [], {partition.name: partition for partition in known}
    for name in requested(partition_of(phase, environment), known):
        if name not in by_name:
            there = f"there is no partition {name!r}; there are {', '.join(by_name)}"
            cure = "name one in the site file (partition), or export SBATCH_PARTITION=…"
            raise CannotStart(f"{phase.stem}: {there}; {cure}")
        if (why := _why_not(phase, nodes, environment, by_name[name])) is None:
            return
        reasons.append(why)
    if reasons:
        raise CannotStart(f"{phase.stem}: {reasons[0]}")


def _why_not(phase: Phase, nodes: Sequence[str], environment: Mapping[str, str], partition: Partition) -> str | None:
    command, name = _command(phase), f"partition {partition.name}"
    advice = f"name another partition for it in the site file (partition: {{{phase.stem}: …}})"
    absent = [node for node in nodes if node not in partition.nodes]
    if partition.state in _CLOSED:
        return f"{name} is {partition.state}: it {_CLOSED[partition.state]}; wait until it is up, or {advice}"
    if absent:
        return f"{name} does not hold {the_first(absent, _SHOWN)}; choose nodes with --nodelist, or {advice}"
    # without a QOS, Slurm uses the user's own, which is unknown here. Only Slurm knows the tree of accounts
    if qos := environment.get(f"{command}_QOS"):
        if partition.qos and qos.lower() not in (accepted.lower() for accepted in partition.qos):
            takes = f"{name} takes jobs of QOS {', '.join(partition.qos[:_SHOWN])}, and its QOS is {qos}"
            return f"{takes}; name another one for it in the site file (qos: {{{phase.stem}: …}})"
        return None  # a QOS may lift the partition's limits; only Slurm knows
    count = 1 if phase.max_nodes == 1 else len(nodes)
    if count < partition.least_nodes:
        least = f"{name} starts none below {partition.least_nodes} (MinNodes)"
        return f"its job has {many(count, 'node')}, and {least}; {advice}"
    if partition.most_nodes is not None and count > partition.most_nodes:
        most = f"{name} starts none above {partition.most_nodes} (MaxNodes)"
        return f"its job has {count} nodes, and {most}; take fewer nodes, or {advice}"
    requested = requested_minutes(phase, environment)
    if requested is not None and partition.minutes is not None and requested > partition.minutes:
        asks = f"its job asks for {requested:g} minutes, and {name} allows {partition.minutes:g} (MaxTime)"
        less = f'say less in the site file (time_limits: {{{phase.stem}: "{partition.minutes:g}"}})'
        return f"{asks}; {less}, or {advice}"
    return None
