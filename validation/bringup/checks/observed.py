"""All observations of one run folder: what was read, and what follows from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from bringup.checks.fabric import derive as fabric
from bringup.checks.filesystem import derive as filesystem
from bringup.checks.gpu import derive as gpu
from bringup.checks.load import derive as load
from bringup.checks.nccl import derive as nccl
from bringup.checks.node import derive as node
from bringup.checks.run import provenance
from bringup.checks.slurm import derive as slurm
from bringup.checks.sweep import derive as sweep
from bringup.checks.training import derive as training
from bringup.checks.training import measured
from bringup.evidence.parsed import Parsed, Seen
from bringup.evidence.reading import read_raw
from bringup.plan.phases import PHASES
from bringup.records import Run
from bringup.results import TrainingRecords

DERIVATIONS: tuple[Callable[[Seen, Run], Parsed], ...] = (  # each gets what was read, not the results of the others
    node.derive,
    gpu.derive,
    fabric.derive,
    slurm.derive,
    filesystem.derive,
    sweep.derive,
    load.derive,
    nccl.derive,
    training.derive,
)


def read_run(folder: Path, run: Run, records: TrainingRecords) -> Parsed:
    """Bad evidence is reported as a problem; it never raises."""
    parsed = read_raw(folder, run, records.steps)
    parsed.add(provenance.derive(Seen(parsed.observations), folder, run))
    if PHASES[run.phase].is_training:
        parsed.add(measured.of_folder(folder, run, records))
    observed = Seen(parsed.observations)
    for derive in DERIVATIONS:
        parsed.add(derive(observed, run))
    return parsed
