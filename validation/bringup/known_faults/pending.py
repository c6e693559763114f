"""Why a job waits or never ran, in plain words. The table is data. Slurm's reasons: squeue(1), JOB REASON CODES."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from bringup.errors import UsageError
from bringup.evidence import hostlist


@dataclass(frozen=True)
class Node:
    state: str
    reason: str | None


@dataclass(frozen=True)
class Cause:
    reason: str  # a pattern for the whole of Slurm's reason
    says: str
    do: str
    nodes: bool = False  # the state of the job's nodes explains it further


CAUSES: tuple[Cause, ...] = (
    Cause(
        r"ReqNodeNotAvail.*|Nodes required for job are DOWN.*",
        "a node that it requested cannot take jobs",
        "repair and resume the node (scontrol update NodeName=NODE State=RESUME), or submit without it",
        nodes=True,
    ),
    Cause(
        r"Resources",
        "the nodes that it fits on are busy; it is next",
        "wait, or ask for less: squeue says who runs there",
        nodes=True,
    ),
    Cause(
        r"Priority",
        "jobs of higher priority are before it",
        "wait; squeue --start estimates the time, sprio shows the priorities",
    ),
    Cause(
        r"DependencyNeverSatisfied",
        "the job it depends on ended in the wrong way, so it can never begin",
        "scancel it, repair the first job, submit again (--kill-on-invalid-dep=yes cancels such jobs)",
    ),
    Cause(
        r"Dependency",
        "it waits for the end of another job",
        "wait; scontrol show job names the other one (Dependency=)",
    ),
    Cause(
        r"BeginTime",
        "it may not begin yet: it was submitted with --begin, or was requeued",
        "wait; a requeued job is held back for two minutes (cred_expire)",
        nodes=True,
    ),
    Cause(
        r"PartitionNodeLimit|PartitionDown|PartitionInactive|PartitionTimeLimit",
        "its partition does not take such a job: too many nodes, too long, or the partition is closed",
        "scontrol show partition says what it takes; scancel, and submit with less or elsewhere",
    ),
    Cause(
        r"BadConstraints",
        "no set of nodes has what it requested",
        "compare --gpus, --cpus, --mem, --constraint with scontrol show node",
    ),
    Cause(r"JobHeldUser", "its owner holds it", "scontrol release JOB"),
    Cause(r"JobHeldAdmin", "an administrator holds it", "ask why; scontrol release JOB"),
    Cause(
        r"Reservation|ReservationDeleted", "it waits for its reservation, or that is gone", "scontrol show reservation"
    ),
    Cause(
        r"(QOS|Assoc|MaxJobs|Max.*Per).*",
        "a limit of its account or QOS is reached",
        "sacctmgr show qos; sacctmgr show assoc user=$USER; wait for own jobs to end",
    ),
    Cause(
        r"InvalidAccount|InvalidQOS",
        "Slurm finds no account or QOS for it",
        "wait: where nothing is accounted, Slurm 23.11 says so of a job that then runs; if it stays, "
        "sacctmgr show assoc user=$USER, and submit with --account or --qos",
        nodes=True,
    ),
    Cause(r"Licenses", "the licences that it requested are in use", "scontrol show licenses"),
    Cause(
        r"launch failed requeued held|JobLaunchFailure|.*launch.*",
        "a node could not start it: folder, user or prolog is missing there",
        "read slurmd.log on the node; after the repair scontrol release JOB",
        nodes=True,
    ),
    Cause(r"Prolog", "its prolog is still running", "wait; if it stays, read slurmd.log on the node", nodes=True),
    Cause(r"NodeDown", "a node went down under it", "scontrol show node; submit again", nodes=True),
    Cause(r"OutOfMemory", "it took more memory than it was granted", "raise --mem"),
    Cause(r"TimeLimit", "its time was over", "raise --time, or resume from a checkpoint"),
    Cause(r"NonZeroExitCode|RaisedSignal.*", "its script ended with an error", "read its log in slurm-logs/"),
)
_STATES = (
    ("NOT_RESPONDING", "slurmd does not answer"),
    ("INVALID_REG", "it reports less hardware than slurm.conf says"),
    ("DRAIN", "drained: it takes no new job"),
    ("DOWN", "down"),
    ("FAIL", "failing"),
    ("MAINT", "in maintenance"),
    ("REBOOT", "rebooting"),
    ("POWER", "powering up or down"),
    ("ALLOCATED", "busy"),
    ("MIXED", "partly busy"),
    ("IDLE", "free"),
)


def cause_of(reason: str) -> Cause | None:
    """Slurm writes blanks as underscores in some answers."""
    spaced = reason.replace("_", " ")
    return next(
        (cause for cause in CAUSES if re.fullmatch(cause.reason, spaced) or re.fullmatch(cause.reason, reason)), None
    )


def is_about_nodes(reason: str) -> bool:
    """Whether the state of the job's nodes may explain the wait. An unknown reason may be about nodes."""
    cause = cause_of(reason)
    return cause is None or cause.nodes


def named_nodes(reason: str) -> list[str]:
    """The nodes of `ReqNodeNotAvail, UnavailableNodes:n[3-4]`."""
    match = re.search(r"UnavailableNodes:(\S+)", reason)
    try:
        return hostlist.expand(match[1]) if match else []
    except UsageError:
        return [match[1]] if match else []


def explain(reason: str, nodes: Mapping[str, Node]) -> str:
    """One line: the cause of the wait, the nodes with state and reason, what to do. Empty if no reason is given."""
    if reason in ("", "None"):
        return ""
    cause = cause_of(reason)
    if cause is None:
        return f"{reason} (squeue(1) explains Slurm's reasons)"
    concerned = named_nodes(reason) or (_unusable(nodes) if cause is CAUSES[0] else [])
    states = "; ".join(_node(name, nodes.get(name)) for name in concerned)
    return f"{cause.says}{f' ({states})' if states else ''}; {cause.do}"


def _unusable(nodes: Mapping[str, Node]) -> list[str]:
    return [
        name
        for name, node in nodes.items()
        if any(flag in node.state for flag in ("DOWN", "DRAIN", "FAIL", "NOT_RESPONDING"))
    ]


def _node(name: str, node: Node | None) -> str:
    if node is None:
        return f"{name}: Slurm does not know it"
    meaning = next((text for flag, text in _STATES if flag in node.state), node.state.lower())
    return f"{name}: {meaning}" + (f", '{node.reason}'" if node.reason else "")
