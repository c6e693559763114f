"""The lines that a person pastes: DRAIN for a node that evidence speaks against, RESUME for one that passes again.

bringup runs none of them. A line is printed only for evidence that is whole, at most a day old, of this cluster and of
this boot of the node; else a remark says why there is none. Where Slurm cannot be asked, a remark says so.
"""

import re
import shlex
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta, timezone
from typing import NamedTuple

from bringup.kernel.errors import SlurmError
from bringup.kernel.facts.names import listed
from bringup.kernel.judge import Judged
from bringup.kernel.plan import catalogue, subjects
from bringup.kernel.plan.gate import OF_SITE
from bringup.kernel.records import Outcome, SlurmCluster, time_of
from bringup.readers.node_states import Node
from bringup.report import drain
from bringup.report.text import plain

OLDEST = timedelta(hours=24)
CLOCKS_DIFFER = timedelta(minutes=10)
_OUT = re.compile(r"DRAIN|DOWN|FAIL|INVAL|NOT_RESPONDING")
_LONG_AGO = datetime.fromtimestamp(0, timezone.utc)


class Present(NamedTuple):
    """What Slurm says now, as far as it could be asked."""

    cluster: SlurmCluster | None
    nodes: dict[str, Node]
    why_not: str | None = None


def _ask(judged: Sequence[Judged], now: datetime) -> Present:
    """Ask Slurm, where one of the runs may give a line."""
    if all(refusal(run, None, now) for run in judged):
        return Present(None, {})
    from bringup.run import slurm

    try:
        return Present(slurm.cluster(), slurm.nodes_in(slurm.show_nodes(times="%s")))
    except SlurmError as error:
        return Present(None, {}, plain(str(error)))


def lines(judged: Sequence[Judged], now: datetime) -> list[str]:
    """Write commands to paste, each under a remark that says what it rests on; and remarks where there is none."""
    present = _ask(judged, now)
    accused = {run.folder: [each.node for each in drain.proposals([run]) if each.command] for run in judged}
    used, shown = [], []
    for run in judged:
        if (why := refusal(run, present.cluster, now)) is None:
            used.append(run)
        elif accused[run.folder]:
            shown.append(f"# no line for {listed(accused[run.folder])}: run {plain(run.run.name)} {why}")
    proposals = drain.proposals(used)
    for proposal in proposals:
        against = [run for run in used if proposal.node in accused[run.folder]]
        shown += [proposal.line] if proposal.command is None else _drain(proposal, against, present, now)
    spared = {proposal.node for proposal in proposals}
    for name in dict.fromkeys(node for run in used for node in run.run.nodes):
        if name not in spared and name in present.nodes:
            shown += _resume(name, present.nodes[name], used, now)
    if shown and present.why_not is not None:
        shown.append(f"# what these nodes are now, Slurm could not be asked: {present.why_not}")
    return shown


def refusal(run: Judged, here: SlurmCluster | None, now: datetime) -> str | None:
    """Say why this run gives no line, as `is …`; None: it may."""
    if run.objection is not None:
        return f"cannot be used: {plain(run.objection)}"
    age = now - _closed_at(run)
    if age > OLDEST:
        return f"was closed {_hours(age)} ago, expected at most {_hours(OLDEST)}; run the phase again"
    if age < -CLOCKS_DIFFER:
        return f"was closed {_hours(-age)} from now, by the clock of this host"
    if here is None:
        return None
    there = run.run.of_cluster
    if None in there:
        return f"does not say which cluster it is of, and this is {here}"
    return None if there == here else f"is of cluster {plain(str(there))}, and this is {here}"


def _drain(proposal: drain.Proposal, against: Sequence[Judged], present: Present, now: datetime) -> list[str]:
    node = present.nodes.get(proposal.node)
    if node is None and present.why_not is None:
        return [f"# no line for {proposal.node}: Slurm knows no such node"]
    if node is not None and _OUT.search(node.state):
        reason = plain(node.reason or "no reason")
        return [f"# no line for {proposal.node}: Slurm has it as {node.state} already: {reason}"]
    if (why := _booted_since(node, against)) is not None:
        return [f"# no line for {proposal.node}: {why}"]
    return [f"# {proposal.node}: {_rests_on(against, node, now)}", proposal.line]


def _resume(name: str, node: Node, used: Sequence[Judged], now: datetime) -> list[str]:
    """For a node that a line of ours drained: it passes again when each gate of its reason has passed there since."""
    given = drain.read_reason(node.reason)
    if given is None or "DRAIN" not in node.state:
        return []
    later = [run for run in used if run.run.opened_at[:16] > given.date[:16] and name in run.run.nodes]
    gates = [gate for gate in given.gates if gate in catalogue.GATES or gate.startswith(OF_SITE)]
    for gate in gates:
        verdicts = [verdict for run in later for verdict in run.verdicts.verdicts if verdict.gate == gate]
        outcomes = {verdict.outcome for verdict in verdicts if name in subjects.nodes_of(verdict.subject)}
        if not outcomes or not outcomes <= {Outcome.PASS, Outcome.WARN}:
            words = "was not asked there since" if not outcomes else "did not pass there since"
            return [f"# no line for {name}: it was drained by {given.by} for {gate}, which {words}"]
    if not gates:
        return []
    if drain.SHORTENED.search(given.finding):
        return [f"# no line for {name}: its reason names a part of its gates; {given.by} has all of them"]
    if (why := _booted_since(node, later)) is not None:
        return [f"# no line for {name}: {why}"]
    line = shlex.join(["scontrol", "update", f"NodeName={name}", "State=RESUME"])
    return [f"# {name} passes again ({', '.join(gates)}): {_rests_on(later, node, now)}", line]


def _booted(node: Node | None) -> datetime | None:
    """Return when; slurmctld does not know it of a node that has not registered."""
    if node is None or not node.booted.isdecimal():
        return None
    return datetime.fromtimestamp(int(node.booted), timezone.utc)


def _booted_since(node: Node | None, runs: Iterable[Judged]) -> str | None:
    opened = min((time_of(run.run.opened_at) for run in runs), default=_LONG_AGO)
    if (booted := _booted(node)) is None or booted <= opened:
        return None
    return f"it booted at {_minute(booted)}, after its evidence began ({_minute(opened)}); run the phase again"


def _rests_on(runs: Sequence[Judged], node: Node | None, now: datetime) -> str:
    of = ", ".join(
        f"run {plain(run.run.name)} (closed {_hours(now - _closed_at(run))} ago, {plain(str(run.run.of_cluster))})"
        for run in runs
    )
    booted = _booted(node)
    return f"{of}; boot: {'not known' if booted is None else _minute(booted)}"


def _closed_at(run: Judged) -> datetime:
    """By the file that was judged. What was not closed is as old as can be."""
    closed = None if run.seal is None else run.seal.closed
    return _LONG_AGO if closed is None else time_of(closed.closed_at)


def _hours(age: timedelta) -> str:
    return f"{age / timedelta(hours=1):.1f} h"


def _minute(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%MZ")
