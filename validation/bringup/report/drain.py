"""Which nodes the evidence speaks against, and the commands that keep jobs away from them.

A line is proposed only where a node is to blame: a gate that judges single nodes (or their ranks, outside of
training, where the program may be at fault) failed on it, and did not fail on most nodes of that run, which would be
a fault of the cluster or of the expectation. A node that is only odd (its kernel is newer: a rolling update) is named,
without a line: the gate has to say that the node is broken. An incomplete verdict drains no node. A node that Slurm
keeps out already keeps the reason that somebody gave.

The reason has one form: owner, finding, what helps, date, and who found it. It is read back to see whether the node
passes again:
    bringup: discovery.gpu.count 1, expected 2; reboot (2026-11-23T02:00Z, run 20261123-020000-abc)
"""

import re
import shlex
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bringup.kernel.facts import hostlist
from bringup.kernel.facts.names import listed
from bringup.kernel.judge import Judged
from bringup.kernel.plan import catalogue
from bringup.kernel.plan.gate import Gate
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.plan.rules import FLEET
from bringup.kernel.records import Action, Outcome, Run, grouped
from bringup.report import fleet
from bringup.report.fleet import COSTS
from bringup.report.text import plain

OWNER = "bringup: "
TEMPLATE = OWNER + "{finding}; {action} ({date}, {by})"
NOT_ALLOWED = r"[^A-Za-z0-9 ._:/,;()+=-]+"  # each run of such becomes one _
MOST_OF_A_REASON = 200  # characters; sinfo -R shows 20 of them

_FORM = re.compile(
    re.escape(OWNER) + r"(?P<finding>.*); (?P<action>[a-z]+) \((?P<date>[0-9T:Z-]+), (?P<by>[^()]+)\)(?: \[.*\])?"
)


class Reason(NamedTuple):
    finding: str
    action: str
    date: str
    by: str

    @property
    def gates(self) -> list[str]:
        """Return words that look like gates, in order: which of them are some, the catalogue knows."""
        return list(dict.fromkeys(re.findall(r"\b[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)+\b", self.finding)))


def reason_of(finding: str, action: Action, date: str, by: str) -> str:
    """Write a short reason. What is too long is the finding: owner, action, date and finder stay."""
    tail = TEMPLATE.removeprefix(OWNER).format(finding="", action=action, date=date, by=by)
    whole = OWNER + finding[: max(0, MOST_OF_A_REASON - len(OWNER) - len(tail))].rstrip() + tail
    return re.sub(NOT_ALLOWED, "_", whole)


def read_reason(text: str | None) -> Reason | None:
    """Read a drain reason, without what `scontrol show node` adds, [root@2026-…]. None: it is not of bringup."""
    match = _FORM.fullmatch((text or "").strip())
    return None if match is None else Reason(**match.groupdict())


STATE_GATE = "discovery.node.state"
_NAMED = 3
SHORTENED = re.compile(r" and \d+ more$")  # a finding that names these alone
_BY_HAND = (Action.RESET, Action.REBOOT, Action.INSPECT, Action.REPLACE)  # of a node that is out of service meanwhile
_COMPARES = ("against-peers", "against-all", "alike")


class Proposal(NamedTuple):
    """`command` is an argument list, for no shell; None: nothing to do, and `why` says so."""

    node: str
    why: str
    command: list[str] | None

    @property
    def line(self) -> str:
        """Write a line to read, or to paste into a shell."""
        return f"# {plain(self.why)}" if self.command is None else shlex.join(self.command)


class KeepAway(NamedTuple):
    """The same for a reader: how jobs are kept away from all these nodes."""

    lines: list[str]  # commands, one per reason; then what is not drained, and why
    exclude: str  # an option of sbatch, salloc and srun; empty: no node is to be drained
    others: str  # the nodes of these runs against which nothing speaks, as a Slurm node list
    other_count: int
    suspected: str  # those that are neither: something speaks against them, and not enough to drain them


def keep_away(judged: Sequence[Judged], nodes: Sequence[fleet.Node]) -> KeepAway:
    """Propose nodes to avoid. nodes: of all these runs, in order."""
    proposed = proposals(judged)
    drained = [proposal for proposal in proposed if proposal.command is not None]
    by_reason = grouped((proposal.why, proposal.node) for proposal in drained)
    clean = set(fleet.standing(judged, nodes).clean)
    rest = [node.name for node in nodes if node.name not in {proposal.node for proposal in proposed}]
    others = [node for node in rest if node in clean]
    return KeepAway(
        lines=[shlex.join(_command(hostlist.shortened(names), why)) for why, names in by_reason.items()]
        + [proposal.line for proposal in proposed if proposal.command is None],
        exclude=f"--exclude={hostlist.shortened([proposal.node for proposal in drained])}" if drained else "",
        others=hostlist.shortened(others),
        other_count=len(others),
        suspected=hostlist.shortened([node for node in rest if node not in clean]),
    )


def proposals(judged: Sequence[Judged]) -> list[Proposal]:
    """Return one per node that failed a gate of its own, by name; then per gate that most failed, and per oddity."""
    against: dict[str, dict[str, Action]] = defaultdict(dict)
    odd: dict[str, dict[str, None]] = defaultdict(dict)
    runs: dict[str, Run] = {}
    remarks: list[str] = []
    for run in judged:
        for gate, actions in _failed_nodes(run).items():
            if len(run.run.nodes) > 1 and len(actions) > len(run.run.nodes) / 2:
                where = f"{len(actions)} of {len(run.run.nodes)} nodes of {run.run.name}"
                fault = "a fault of the cluster or of the expectation; no node is drained for it"
                remarks.append(f"{gate} failed on {where}: {fault}")
                continue
            is_broken = _is_broken(catalogue.GATES.get(gate) or run.own[gate], max(actions.values(), key=COSTS.index))
            for node, action in actions.items():
                if is_broken:
                    against[node][gate] = max(action, against[node].get(gate, action), key=COSTS.index)
                    runs.setdefault(node, run.run)
                else:
                    odd[node][gate] = None
    only_odd = grouped((", ".join(gates), node) for node, gates in sorted(odd.items()) if node not in against)
    remarks += [
        f"no line for {listed(nodes)}: it is not broken; it differs from other nodes, or lacks a setting ({gates})"
        for gates, nodes in only_odd.items()
    ]
    lines = [_proposal(node, against[node], runs[node]) for node in sorted(against)]
    return [*lines, *(Proposal("", words, None) for words in remarks)]


def _is_broken(gate: Gate, action: Action) -> bool:
    """Say whether a failure means that the node is broken, and not only that it differs or wants a setting."""
    compares = gate.rule in FLEET or gate.fold.how in _COMPARES
    stops = Outcome.FAIL in gate.stops or gate.command is not None  # a check of the site's own stops no phase
    return action in _BY_HAND or (not compares and stops)


def _failed_nodes(judged: Judged) -> dict[str, dict[str, Action]]:
    """Gate -> nodes of this run on which it failed -> what usually helps there."""
    nodes_of: dict[str, dict[str, Action]] = {}
    for verdict in judged.verdicts.verdicts:
        gate = catalogue.GATES.get(verdict.gate) or judged.own.get(verdict.gate)
        if verdict.outcome is not Outcome.FAIL or gate is None or gate.per not in ("node", "rank"):
            continue
        node = verdict.node
        if node in judged.run.nodes and not all(PHASES[stem].is_training for stem in gate.phases):
            action = verdict.action or gate.helps
            known = nodes_of.setdefault(gate.id, {})
            known[node] = max(action, known.get(node, action), key=COSTS.index)
    return nodes_of


def _proposal(node: str, failed: Mapping[str, Action], run: Run) -> Proposal:
    if node.lower() == "all":
        return Proposal(node, f"{node!r} is every node, to scontrol; nothing is drained for it", None)
    gates = list(failed)
    named = " ".join(gates[:_NAMED]) + (f" and {len(gates) - _NAMED} more" if len(gates) > _NAMED else "")
    if STATE_GATE in gates:
        return Proposal(node, f"{node}: Slurm keeps it out already ({named} failed); its reason is left as it is", None)
    action = max(failed.values(), key=COSTS.index)
    why = reason_of(named, action, f"{run.opened_at[:16]}Z", f"run {run.name}")
    return Proposal(node, why, _command(node, why))


def _command(nodes: str, why: str) -> list[str]:
    return ["scontrol", "update", f"NodeName={nodes}", "State=DRAIN", f"Reason={why}"]
