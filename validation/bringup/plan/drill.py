"""What a drill is: a declared fault, and the gate and subject that must report it. And gates without a drill.

Commands are verbs of infrastructure-validation/local-cluster/cluster. `environment` goes to the phase that is run.
Nodes are called n0, n1, … and ranks count as on 2 nodes of 2 GPUs (or 4 nodes of 1): elsewhere.py translates them to
the names of another cluster.
"""

from __future__ import annotations

from dataclasses import dataclass

from bringup.records import Outcome

Command = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Drill:
    id: str
    fault: str
    phase: str  # that is run while the fault is in place
    gate: str
    subject: str
    outcome: Outcome
    # whole words of the verdict, observed or cause (with … behind them: their beginning); or a signature found in the
    # logs
    says: str
    between: tuple[float, float] | None = None  # and the observed number: the size of the fault that was made
    inject: tuple[
        Command, ...
    ] = ()  # {results}, a word of its own: the folder of all runs; {phase}: the name of its job
    during: tuple[Command, ...] = ()  # made when the phase has opened its run, while it works
    undo: tuple[Command, ...] = ()
    wait_for: tuple[str, str] | None = None  # node and Slurm state, before the phase starts
    environment: tuple[tuple[str, str], ...] = ()
    nodes: int = 2  # of the cluster that it needs
    unconfined: bool = False  # the cluster confines no devices, memory or cores
    truncate: str | None = None  # a file of a healthy run that loses its second half
    tamper: str | None = None  # bash, in the folder of a healthy run; $OTHER is the folder of another one
    also: tuple[tuple[str, str], ...] = ()  # further (gate, subject) pairs that must have the same outcome
    silent: tuple[str, ...] = ()  # subjects on which every gate must pass
    consequences: tuple[
        tuple[str, str], ...
    ] = ()  # patterns of (gate, subject) that this fault may well make fail besides
    where: str = "local-cluster"  # or anywhere: safe inside a job of one's own on a production cluster
    waits: bool = False  # most of the time, so that other drills are performed beside it, on another cluster
    needs_expected: tuple[str, str] | None = (
        None  # gate, and a pattern of what the profile must expect: a fabric that is not there
    )

    @property
    def gpus(self) -> int:
        """Per node of the cluster whose names it is declared in."""
        return 2 if self.nodes == 2 else 1


@dataclass(frozen=True, kw_only=True)
class NoDrill:
    """Gates that no drill makes fail: why not, and the test that shows them failing on evidence instead."""

    gates: tuple[str, ...]
    reason: str
    test: str  # file in tests/; it marks the tests in question with shows_failing
