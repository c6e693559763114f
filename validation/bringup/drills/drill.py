"""What a drill is: a declared fault, and the gate and subject that must say so. pytest runs them on the live cluster.

Commands are verbs of infrastructure-validation/local-cluster/cluster; `environment` goes to the phase that is run.
"""

from __future__ import annotations

from dataclasses import dataclass

from bringup.records import Outcome


@dataclass(frozen=True, kw_only=True)
class Drill:
    id: str
    fault: str
    phase: str  # that is run while the fault is in place
    gate: str
    subject: str
    outcome: Outcome
    says: str  # words that the verdict must hold, as observed or as cause
    inject: tuple[tuple[str, ...], ...] = ()  # {results}: the folder of all runs
    undo: tuple[tuple[str, ...], ...] = ()
    wait_for: tuple[str, str] | None = None  # node and Slurm state, before the phase starts
    environment: tuple[tuple[str, str], ...] = ()
    nodes: int = 2  # of the cluster that it needs
    unconfined: bool = False  # the cluster confines no devices, memory or cores
    also: tuple[tuple[str, str], ...] = ()  # further (gate, subject) pairs that must have the same outcome
    truncate: str | None = None  # a file of the finished run that loses its second half
    silent: tuple[str, ...] = ()  # subjects on which every gate must pass
    where: str = "local-cluster"  # or anywhere: safe inside a job of one's own on a production cluster
