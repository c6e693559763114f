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

CLOSED = Gate(id="run.closed", phases=tuple(PHASES), question=6, per="job",
              proves="the phase script came to its end",
              quantity="run.closed", unit="flag", rule="equals", expect=Fixed(True),
              fix="docs/06-failure-modes.md#not-closed")

GATES: dict[str, Gate] = {gate.id: gate for gate in (
    CLOSED, *DISCOVERY, *GPU_HEALTH, *FABRIC, *SLURM_AUDIT, *SMOKE, *COLLECTIVES, *TRAINING)}


def of_phase(stem: str) -> list[Gate]:
    return [gate for gate in GATES.values() if stem in gate.phases]
