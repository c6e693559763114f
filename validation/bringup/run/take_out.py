"""`--apply`: drain the nodes that evidence speaks against, as far as the evidence may be used and the brake allows."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from bringup.derive.provenance import moment
from bringup.errors import RecordError, SlurmError
from bringup.judge import Judged
from bringup.report import drain, reason, system
from bringup.report.text import plain
from bringup.run import brake, signature, slurm

Tell = Callable[[str], None]
OLDEST_H = 24
CLOCKS_DIFFER = timedelta(minutes=10)
_BOOTED = re.compile(r"^NodeName=(\S+) .*?\bBootTime=(\d+)\b", re.MULTILINE)


@dataclass(frozen=True)
class Rule:
    most: str = brake.MOST  # of a partition
    oldest_h: int = OLDEST_H  # of evidence
    signers: Path | None = None  # whose evidence counts; None: a signature is not needed


def apply(judged: Sequence[Judged], rule: Rule, tell: Tell) -> bool:
    """True when nothing is left to be done. A node that Slurm keeps out by now keeps its reason. Raises SlurmError:
    nothing was done."""
    against = {run.folder: nodes for run in judged if (nodes := _accused(run))}
    if not against:
        tell("nothing to apply")
        return True
    cluster = slurm.cluster_name()
    refused = {
        run.folder: why
        for run in judged
        if run.folder in against and (why := refusal(run, rule, cluster, datetime.now(timezone.utc)))
    }
    for folder, why in refused.items():
        tell(f"not used: run {plain(folder.name)}: {why}; no node is drained for it")
    used = [run for run in judged if run.folder not in refused]
    todo = [proposal for proposal in drain.proposals(used) if proposal.command is not None]
    if not todo:
        return not refused
    closed: dict[str, datetime] = defaultdict(lambda: datetime.max.replace(tzinfo=timezone.utc))
    for run in used:
        for node in against.get(run.folder, ()):
            closed[node] = min(closed[node], _closed_at(run))
    booted = _booted([proposal.node for proposal in todo])
    fresh = []
    for proposal in todo:
        if (at := booted.get(proposal.node)) is not None and at > closed[proposal.node]:
            tell(f"not drained: {proposal.node}: it has booted after the evidence was closed; run the phase again")
        else:
            fresh.append(proposal)
    return _drained(fresh, rule, tell) and len(fresh) == len(todo) and not refused


def _accused(run: Judged) -> list[str]:
    return [proposal.node for proposal in drain.proposals([run]) if proposal.command is not None]


def refusal(run: Judged, rule: Rule, cluster: str | None, now: datetime) -> str | None:
    """Why no node may be drained for this run's evidence; None: it may be used."""
    if run.objection is not None:
        return plain(run.objection)
    age = now - _closed_at(run)
    if age > timedelta(hours=rule.oldest_h):
        return f"it was closed {age / timedelta(hours=1):.0f} h ago, expected at most {rule.oldest_h} (--older)"
    if age < -CLOCKS_DIFFER:
        return f"it was closed {-age / timedelta(hours=1):.1f} h from now, by the clock of this host"
    if rule.signers is not None:
        try:
            signature.signer(run, rule.signers)
        except RecordError as error:
            return plain(str(error))
    there = system.cluster_name([run])
    if there is None:
        return f"it does not say which cluster it is of, and this is {cluster}"
    if there != cluster:
        return f"it is of cluster {plain(there)}, and this is {cluster}"
    return None


def _closed_at(run: Judged) -> datetime:
    """A time that cannot be read is as old as can be."""
    closed = None if run.seal is None or run.seal.closed is None else moment(run.seal.closed.closed_at)
    return datetime.fromtimestamp(0, timezone.utc) if closed is None else closed


def _booted(nodes: Sequence[str]) -> dict[str, datetime]:
    """As far as slurmctld knows: a node that has just been resumed has no time yet."""
    shown = slurm.ask(
        *("scontrol", "--oneliner", "show", "node", ",".join(nodes)), environment=brake.environment(brake.TIMES)
    )
    return {name: datetime.fromtimestamp(int(seconds), timezone.utc) for name, seconds in _BOOTED.findall(shown)}


def _drained(proposals: Sequence[drain.Proposal], rule: Rule, tell: Tell) -> bool:
    """Whether all of them are out of service now."""
    guard = brake.Brake(_ask, rule.most, reason.OWNER, reason.SLURMS_OWN)
    try:
        before = guard.look()
        reasons = {proposal.node: proposal.why for proposal in proposals}
        for node in [node for node in reasons if node in before and before[node].is_out]:
            tell(f"left as it is: {node}: {before[node].state}")
            del reasons[node]
        answers = guard.drain(list(reasons.items()), before)
    except brake.SlurmAway as error:
        raise SlurmError(f"{error}; nothing was drained") from error
    for answer in answers:
        if answer.is_drained:
            tell(f"drained: {answer.node}")
        else:
            verb = "not drained" if answer.is_drained is not None else "not known whether it is drained"
            tell(f"{verb}: {answer.node}: {plain(answer.why)}; {reasons[answer.node]}")
    return all(answer.is_drained for answer in answers)


def _ask(command: Sequence[str], more: dict[str, str]) -> str:
    try:
        return slurm.ask(*command, environment=brake.environment(more))
    except SlurmError as error:
        raise brake.SlurmAway(str(error)) from error
