"""What a partition takes: a phase that it would never start is refused before anything is submitted.

Slurm itself refuses such a job only where EnforcePartLimits is set. Elsewhere it accepts the job and leaves it pending.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bringup.errors import CannotStart
from bringup.evidence import hostlist
from bringup.plan.phases import Phase
from bringup.results import REPOSITORY

_UNLIMITED = ("UNLIMITED", "INFINITE", "NONE", "0", "(null)")
_SHOWN = 4
# the script's own limit, where neither the site file nor the environment has one
_OWN_LIMIT = re.compile(r"^#SBATCH --time=(\S+)|SALLOC_TIMELIMIT:-([^}]+)\}", re.MULTILINE)
_CLOSED = {"DOWN": "starts no job", "DRAIN": "takes no new job", "INACTIVE": "takes and starts no job"}


@dataclass(frozen=True)
class Partition:
    """As `scontrol show partition` says it. None: no limit."""

    name: str
    is_default: bool
    nodes: frozenset[str]
    state: str
    minutes: float | None
    least_nodes: int
    most_nodes: int | None
    qos: tuple[str, ...]  # those it takes; empty: all


def read(text: str) -> list[Partition]:
    """Of `scontrol --oneliner show partition`."""
    found = []
    for line in text.splitlines():
        said = dict(word.split("=", 1) for word in line.split() if "=" in word)
        if "PartitionName" not in said:
            continue
        most = said.get("MaxNodes", "UNLIMITED")
        found.append(
            Partition(
                name=said["PartitionName"],
                is_default=said.get("Default") == "YES",
                nodes=frozenset(
                    hostlist.expand(nodes) if (nodes := said.get("Nodes", "")) not in ("", "(null)") else ()
                ),
                state=said.get("State", "UP"),
                minutes=minutes(said.get("MaxTime", "UNLIMITED")),
                least_nodes=int(least) if (least := said.get("MinNodes", "")).isdecimal() else 0,
                most_nodes=int(most) if most.isdecimal() else None,
                qos=_listed(said.get("AllowQos", "ALL")),
            )
        )
    return found


def _listed(said: str) -> tuple[str, ...]:
    return () if said in ("ALL", "(null)") else tuple(said.split(","))


def minutes(limit: str) -> float | None:
    """As Slurm writes time limits: 90 (minutes), 30:00, 01:30:00, 1-12, 1-12:00:00. None: unlimited, or not a time."""
    if limit.upper() in _UNLIMITED:
        return None
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", limit)
    if match is None:
        return None
    days, first, second, third = (int(part or 0) for part in match.groups())
    if match[1] is not None or match[4] is not None:  # hours come first
        return days * 1440 + first * 60 + second + third / 60
    return first + second / 60


def asked_minutes(phase: Phase, environment: Mapping[str, str]) -> float | None:
    """What the job of a phase will ask for. environment: that of the phase."""
    given = environment.get(f"{_command(phase)}_TIMELIMIT")
    if given is None:
        own = _OWN_LIMIT.search((REPOSITORY / phase.script).read_text(encoding="utf-8"))
        given = None if own is None else own[1] or own[2]
    return None if given is None else minutes(given)


def _command(phase: Phase) -> str:
    return "SBATCH" if phase.submit else "SALLOC"


def partition_of(phase: Phase, environment: Mapping[str, str]) -> str | None:
    """By name; None: the default one."""
    return environment.get(f"{_command(phase)}_PARTITION") or environment.get("SLURM_PARTITION")


def refuse(phase: Phase, nodes: Sequence[str], environment: Mapping[str, str], known: Sequence[Partition]) -> None:
    """Raises CannotStart when no partition that the phase is submitted to takes its job.

    nodes: those of the run. environment: that of the phase.
    """
    named = partition_of(phase, environment)
    wanted = [one for one in known if one.is_default] if named is None else named.split(",")
    reasons = []
    for one in wanted:
        if isinstance(one, str):
            found = next((partition for partition in known if partition.name == one), None)
            if found is None:
                names = ", ".join(partition.name for partition in known)
                raise CannotStart(
                    f"{phase.stem}: there is no partition {one!r}; there are {names}; "
                    "name one in the site file (partition), or export SBATCH_PARTITION=…"
                )
            one = found
        why = _why_not(phase, nodes, environment, one)
        if why is None:
            return
        reasons.append(why)
    if reasons:
        raise CannotStart(f"{phase.stem}: {reasons[0]}")


def _why_not(phase: Phase, nodes: Sequence[str], environment: Mapping[str, str], there: Partition) -> str | None:
    command, name = _command(phase), f"partition {there.name}"
    other = f"name another partition for it in the site file (partition: {{{phase.stem}: …}})"
    absent = [node for node in nodes if node not in there.nodes]
    if there.state in _CLOSED:
        return f"{name} is {there.state}: it {_CLOSED[there.state]}; wait until it is up, or {other}"
    if absent:
        more = f" and {len(absent) - _SHOWN} more" if len(absent) > _SHOWN else ""
        return f"{name} does not hold {', '.join(absent[:_SHOWN])}{more}; choose nodes with --nodelist, or {other}"
    # without one Slurm takes the user's own, which nobody here knows. Accounts are a tree, which Slurm alone knows
    if qos := environment.get(f"{command}_QOS"):
        if there.qos and qos.lower() not in (each.lower() for each in there.qos):
            return (
                f"{name} takes jobs of QOS {', '.join(there.qos[:_SHOWN])}, and its QOS is {qos}; "
                f"name another one for it in the site file (qos: {{{phase.stem}: …}})"
            )
        return None  # it may lift the limits of the partition: Slurm knows, and says so
    fewest, most = (1, 1) if phase.max_nodes == 1 else (len(nodes), len(nodes))
    if fewest < there.least_nodes:
        return f"its job has {fewest} node(s), and {name} starts none below {there.least_nodes} (MinNodes); {other}"
    if there.most_nodes is not None and most > there.most_nodes:
        return (
            f"its job has {most} nodes, and {name} starts none above {there.most_nodes} (MaxNodes); "
            f"take fewer nodes, or {other}"
        )
    asked = asked_minutes(phase, environment)
    if asked is not None and there.minutes is not None and asked > there.minutes:
        return (
            f"its job asks for {asked:g} minutes, and {name} allows {there.minutes:g} (MaxTime); say less in the site "
            f'file (time_limits: {{{phase.stem}: "{there.minutes:g}"}}), or {other}'
        )
    return None
