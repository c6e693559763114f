"""The catalogue: gates and drills of all rooms. One more gate is one more entry in a room."""

from __future__ import annotations

from bringup.checks import device
from bringup.checks.fabric import drills as fabric_drills
from bringup.checks.fabric import gates as fabric_gates
from bringup.checks.filesystem import drills as filesystem_drills
from bringup.checks.filesystem import gates as filesystem_gates
from bringup.checks.gpu import drills as gpu_drills
from bringup.checks.gpu import gates as gpu_gates
from bringup.checks.load import drills as load_drills
from bringup.checks.load import gates as load_gates
from bringup.checks.nccl import drills as nccl_drills
from bringup.checks.nccl import gates as nccl_gates
from bringup.checks.node import drills as node_drills
from bringup.checks.node import gates as node_gates
from bringup.checks.run import drills as run_drills
from bringup.checks.run import gates as run_gates
from bringup.checks.slurm import drills as slurm_drills
from bringup.checks.slurm import gates as slurm_gates
from bringup.checks.sweep import drills as sweep_drills
from bringup.checks.sweep import gates as sweep_gates
from bringup.checks.training import drills as training_drills
from bringup.checks.training import gates as training_gates
from bringup.plan import profile as profiles
from bringup.plan.claims import CLAIMS
from bringup.plan.drill import Drill, NoDrill
from bringup.plan.gate import Gate

_GATES = (
    run_gates,
    node_gates,
    gpu_gates,
    fabric_gates,
    slurm_gates,
    filesystem_gates,
    sweep_gates,
    load_gates,
    nccl_gates,
    training_gates,
)
_DRILLS = (
    run_drills,
    node_drills,
    gpu_drills,
    fabric_drills,
    slurm_drills,
    filesystem_drills,
    sweep_drills,
    load_drills,
    nccl_drills,
    training_drills,
)

GATES: dict[str, Gate] = {gate.id: gate for room in _GATES for gate in room.GATES}
DECLARED: dict[str, Drill] = {drill.id: drill for room in _DRILLS for drill in room.DRILLS}
DRILLS: tuple[Drill, ...] = tuple(  # on local clusters of their shapes
    drill.placed(drill.shape.names, drill.shape.gpus_per_node) for drill in DECLARED.values()
)
NO_DRILL: tuple[NoDrill, ...] = (
    *device.NO_DRILL,
    *(entry for room in _DRILLS for entry in getattr(room, "NO_DRILL", ())),
)


def of_phase(stem: str) -> list[Gate]:
    return [gate for gate in GATES.values() if stem in gate.phases]


def proving(claim: str) -> list[str]:
    """Gates that prove a claim. If none of them was judged, the claim was not asked."""
    return [gate.id for gate in GATES.values() if claim in gate.claims]


def bearing_on(claim: str) -> list[str]:
    """Gates whose failure contradicts a claim."""
    return [gate.id for gate in GATES.values() if claim in gate.bears_on]


def question_of(gate: Gate) -> int:
    return next(claim.question for claim in CLAIMS if claim.id in (*gate.claims, *gate.bears_on))


def check(profile: profiles.Profile) -> None:
    """Check a profile that is not a file. Raises ProfileError."""
    profiles.check(profile, GATES)


def load_profile(name: str) -> profiles.Profile:
    """Load a profile and check it against all gates, before anything runs. Raises ProfileError."""
    return profiles.load(name, GATES)
