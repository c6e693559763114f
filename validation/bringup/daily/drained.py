"""Nodes that Slurm keeps out of service, by whom, and what may become of each. Nothing is changed here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bringup.plan import catalogue, own
from bringup.plan.phases import PHASES
from bringup.records import StrEnum
from bringup.report import reason as reasons
from bringup.report.reason import Reason
from bringup.run import slurm

LOAD, LOAD_GATES = "node_sweep", ("load.kernel_log",)
"""The phase and its gates for a node whose driver reported a fault that is in no log any more."""


class May(StrEnum):
    RESUME = "resume"  # its health check has seen it pass
    ASK_AGAIN = "ask again"  # a run drained it: its phases have to pass there
    WAIT = "wait"
    LEAVE = "leave"  # somebody else drained it


@dataclass(frozen=True)
class Out:
    """A node that is out of service in Slurm."""

    node: str
    state: str  # from sinfo: drained, draining, drained*, down
    given: str  # the reason
    may: May
    why: str
    reason: Reason | None = None

    @property
    def gates(self) -> list[str]:
        if self.reason is None:
            return []
        under_load = LOAD_GATES if self.reason.asks_for_a_load else ()
        named = (*self.reason.gates, *under_load)
        return [gate for gate in named if gate in catalogue.GATES or gate.startswith(own.PREFIX)]

    @property
    def phases(self) -> list[str]:
        """Phases with its gates, and always discovery."""
        ours = [catalogue.GATES[gate] for gate in self.gates if gate in catalogue.GATES and gate not in LOAD_GATES]
        wanted = {"discovery", *(gate.phases[0] for gate in ours)}  # discovery asks the site's own checks, too
        if self.reason is not None and self.reason.asks_for_a_load:
            wanted.add(LOAD)
        return [stem for stem in PHASES if stem in wanted]


def out_of_service() -> dict[str, Out]:
    """Raises SlurmError."""
    shown = f"%N{slurm.SEPARATOR}%T{slurm.SEPARATOR}%E"
    return read(slurm.ask("sinfo", "--noheader", "--Node", "--format", shown))


def read(answer: str) -> dict[str, Out]:
    """Parse `sinfo --Node`: a line per node and partition."""
    by_node: dict[str, Out] = {}
    for line in answer.splitlines():
        node, state, reason = [*line.split(slurm.SEPARATOR, 2), "", ""][:3]
        if any(flag in state.lower() for flag in ("drain", "down", "fail")):
            by_node.setdefault(node.strip(), judged(node.strip(), state.strip(), reason.strip()))
    return dict(sorted(by_node.items()))


def judged(node: str, state: str, given_reason: str) -> Out:
    reason = reasons.read(given_reason)
    if reason is None:
        if given_reason in reasons.SLURMS_OWN:
            why = "a prolog or an epilog failed, with no finding of bringup: slurmd.log on the node says why"
            return Out(node, state, given_reason, May.LEAVE, why)
        return Out(node, state, given_reason, May.LEAVE, "bringup did not drain it")
    if state.lower() != "drained":
        why = (
            "jobs are still running"
            if state.lower().startswith("draining")
            else "Slurm does not reach it, or has it down"
        )
        return Out(node, state, given_reason, May.WAIT, why, reason)
    if reason.passes_since is not None:
        return Out(node, state, given_reason, May.RESUME, f"passes again since {reason.passes_since}", reason)
    if reason.asks_for_a_load:
        why = "what its driver reported is out of the log; a load has to show that it is gone"
        return Out(node, state, given_reason, May.ASK_AGAIN, why, reason)
    if reason.by in reasons.HOOKS:
        return Out(node, state, given_reason, May.WAIT, "its health check has not seen it pass", reason)
    out = Out(node, state, given_reason, May.ASK_AGAIN, f"{reason.by} drained it", reason)
    if not out.gates:
        return Out(node, state, given_reason, May.LEAVE, "no gate of this version is in its reason", reason)
    return out


def is_unchanged(before: Out, now: Mapping[str, Out]) -> bool:
    """Whether the node's state and reason are unchanged."""
    return before.node in now and (now[before.node].state, now[before.node].given) == (before.state, before.given)
