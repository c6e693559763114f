"""Gates of every run: it was closed, its evidence is its own (as far as checksums say), and it ran once. Data only."""

from __future__ import annotations

from bringup.checks.run import guides
from bringup.plan.gate import Fixed, Gate
from bringup.plan.phases import PHASES
from bringup.records import Outcome

GATES: tuple[Gate, ...] = (
    Gate(
        id="run.closed",
        phases=tuple(PHASES),
        claims=("observable",),
        per="job",
        proves="the phase script ran to its end",
        unit="flag",
        rule="equals",
        expect=Fixed(True),
        guide=guides.CLOSED,
    ),
    Gate(
        id="run.evidence",
        phases=tuple(PHASES),
        claims=("observable",),
        per="job",
        severity=Outcome.INCOMPLETE,
        needs=("run.closed",),
        proves="the evidence is this run's own: unchanged since it was closed, and no probe names another run or time",
        unit="text",
        rule="equals",
        expect=Fixed("none"),
        guide=guides.EVIDENCE,
    ),
    Gate(
        id="run.restarts",
        phases=tuple(PHASES),
        bears_on=("observable",),
        per="job",
        severity=Outcome.WARN,
        needs=("run.closed",),
        proves="Slurm started the job once: no node was lost, and the job was not requeued or preempted",
        unit="count",
        rule="equals",
        expect=Fixed(0),
        guide=guides.RESTARTS,
    ),
)
