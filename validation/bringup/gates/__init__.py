"""The catalogue of gates, by id. One more gate is one more entry in the data files beside this one."""

from __future__ import annotations

from bringup.gates.collectives import COLLECTIVES
from bringup.gates.discovery import DISCOVERY
from bringup.gates.fabric import FABRIC
from bringup.gates.gate import Fixed, Gate
from bringup.gates.gpu_health import GPU_HEALTH
from bringup.gates.slurm_audit import SLURM_AUDIT
from bringup.gates.smoke import SMOKE
from bringup.gates.training import TRAINING
from bringup.phases import PHASES
from bringup.records import Outcome

CLOSED = Gate(
    id="run.closed",
    phases=tuple(PHASES),
    question=6,
    per="job",
    proves="the phase script came to its end",
    quantity="run.closed",
    unit="flag",
    rule="equals",
    expect=Fixed(True),
    fix="docs/06-failure-modes.md#not-closed",
)

EVIDENCE = Gate(
    id="run.evidence",
    phases=tuple(PHASES),
    question=6,
    per="job",
    severity=Outcome.INCOMPLETE,
    needs=("run.closed",),
    proves="the evidence is this run's own: unchanged since it was closed, and no probe names another run or time",
    quantity="run.evidence.objection",
    unit="text",
    rule="equals",
    expect=Fixed("none"),
    fix="docs/06-failure-modes.md#evidence",
)

RESTARTS = Gate(
    id="run.restarts",
    phases=tuple(PHASES),
    question=6,
    per="job",
    severity=Outcome.WARN,
    needs=("run.closed",),
    proves="Slurm began the job once: no node was lost under it, and nobody requeued or preempted it",
    quantity="run.restarts",
    unit="count",
    rule="equals",
    expect=Fixed(0),
    fix="docs/06-failure-modes.md#restarts",
)

GATES: dict[str, Gate] = {
    gate.id: gate
    for gate in (
        CLOSED,
        EVIDENCE,
        RESTARTS,
        *DISCOVERY,
        *GPU_HEALTH,
        *FABRIC,
        *SLURM_AUDIT,
        *SMOKE,
        *COLLECTIVES,
        *TRAINING,
    )
}


def of_phase(stem: str) -> list[Gate]:
    return [gate for gate in GATES.values() if stem in gate.phases]
