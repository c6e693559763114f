"""All observations of one run folder: what was read, and what follows from it.

`from:` of each check names a fold, or a function of this room."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from bringup.derive import (
    fabric,
    filesystem,
    fold,
    gpu,
    load,
    measured,
    names,
    nccl,
    node,
    provenance,
    rails,
    slurm,
    sweep,
    training,
)
from bringup.evidence.parsed import Parsed, Seen
from bringup.evidence.reading import read_raw
from bringup.plan.catalogue import of_phase
from bringup.plan.phases import PHASES
from bringup.records import Run
from bringup.results import Seal, TrainingRecords

Function = Callable[[Parsed, Seen, Run], None]

_MODULES: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (fabric, filesystem, gpu, load, names, nccl, node, rails, slurm, sweep, training)
}


def read_run(folder: Path, run: Run, records: TrainingRecords, seal: Seal | None) -> tuple[Parsed, Seen]:
    """Return what was read and derived, and the same by quantity. Bad evidence is a problem; it never raises."""
    parsed = read_raw(folder, run, records.steps)
    seen = Seen(parsed.observations)
    trained = measured.of_folder(folder, run, records) if PHASES[run.phase].is_training else Parsed()
    further = provenance.derive(seen, folder, run, seal)  # last: it compares the checksums of what was read
    further.add(trained)
    seen = Seen(further.observations, beside=seen)
    derived = derive(seen, run)
    parsed.add(further)
    parsed.add(derived)
    return parsed, Seen(derived.observations, beside=seen)


def derive(observed: Seen, run: Run) -> Parsed:
    """Derive from the facts that were read, not from what other folds and functions made: their order says nothing."""
    derived, gates = Parsed(), of_phase(run.phase)
    for gate in gates:
        if gate.fold.how in fold.FOLDS:
            fold.FOLDS[gate.fold.how](derived, gate, observed, run)
    load.rises(derived, [gate for gate in gates if gate.fold.how == "rise"], observed)
    computed = [gate.fold.facts[0] for gate in gates if gate.fold.how == "computed" and gate.fold.facts]
    for name in dict.fromkeys(computed):
        function(name)(derived, observed, run)
    return derived


def function(name: str) -> Function:
    """Find the function driver_log of gpu.py by `gpu.driver_log`."""
    module, _, called = name.partition(".")
    made: Function = getattr(_MODULES[module], called)
    return made
