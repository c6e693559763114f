"""Why a job waits or never ran, in plain words. The table: validation/known_faults/pending.yaml."""

import re
from collections.abc import Mapping

from bringup.kernel.facts import hostlist
from bringup.kernel.records import Record
from bringup.readers.known.tables import Sourced, entries
from bringup.readers.node_states import Meaning, Node, meaning


class Cause(Record):
    reason: str  # a pattern for the whole of Slurm's reason
    says: str
    do: str
    nodes: bool = False  # the state of the job's nodes explains it further


class _Table(Sourced):
    causes: list[Cause]


CAUSES = _Table.model_validate(entries("pending")).causes


def cause_of(reason: str) -> Cause | None:
    """Find the cause of a reason, in which Slurm writes blanks as underscores in some answers."""
    return next((cause for cause in CAUSES if re.fullmatch(cause.reason, reason.replace("_", " "))), None)


def is_about_nodes(reason: str) -> bool:
    """Say whether the state of the job's nodes may explain the wait. An unknown reason may be about nodes."""
    cause = cause_of(reason)
    return cause is None or cause.nodes


def named_nodes(reason: str) -> list[str]:
    """Read the nodes of `ReqNodeNotAvail, UnavailableNodes:n[3-4]`."""
    match = re.search(r"UnavailableNodes:(\S+)", reason)
    return hostlist.named(match[1]) if match else []


def explain(reason: str, nodes: Mapping[str, Node]) -> str:
    """Write a line: why it waits, the nodes with state and reason, what to do. Empty if no reason is given."""
    if reason in ("", "None"):
        return ""
    cause = cause_of(reason)
    if cause is None:
        return f"{reason} (squeue(1) explains Slurm's reasons)"
    unusable = [name for name, node in nodes.items() if meaning(node.state)[0] > Meaning.WAIT]
    concerned = named_nodes(reason) or (unusable if cause.reason.startswith("ReqNodeNotAvail") else [])
    states = {name: "Slurm does not know it" for name in concerned}
    for name in [name for name in concerned if name in nodes]:
        states[name] = meaning(nodes[name].state)[1] + (f", '{nodes[name].reason}'" if nodes[name].reason else "")
    words = "; ".join(f"{name}: {state}" for name, state in states.items())
    return f"{cause.says}{f' ({words})' if words else ''}; {cause.do}"
