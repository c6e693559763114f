"""All observations of one run: what was read, and what follows from it.

`from:` of each check names a fold, or a function of a domain."""

from collections.abc import Callable
from typing import Protocol, cast

from bringup import registry
from bringup.kernel.facts import fold
from bringup.kernel.facts.parser_result import Parsed, Seen
from bringup.kernel.facts.reading import Windows, read_raw
from bringup.kernel.plan.catalogue import of_phase
from bringup.kernel.records import Run
from bringup.kernel.run_folder import RunFolder

Function = Callable[[Parsed, Seen, Run], None]


class Training(Protocol):
    """What is asked here of the records of a training: whether both can be read, and its measured steps."""

    @property
    def are_whole(self) -> bool: ...

    @property
    def steps(self) -> Windows | None: ...


def of_run(folder: RunFolder, training: Training | None) -> tuple[Parsed, Seen]:
    """Return what was read and derived, and the same by quantity. training: its records; None: another phase. Bad
    evidence is a problem; it never raises."""
    parsed = read_raw(folder, None if training is None else training.steps)
    trained = Parsed() if training is None else registry.called(registry.OF_TRAINING)(folder.run, training)
    seen = Seen(parsed.observations)
    further: Parsed = registry.called(registry.OF_EVIDENCE)(seen, folder)
    further.add(trained)
    seen = Seen(further.observations, beside=seen)
    derived = derive(seen, folder.run)
    parsed.add(further)
    parsed.add(derived)
    return parsed, Seen(derived.observations, beside=seen)


def derive(observed: Seen, run: Run) -> Parsed:
    """Derive from the facts that were read, not from what other folds and functions made: their order says nothing."""
    derived, gates = Parsed(), of_phase(run.phase)
    for gate in gates:
        if gate.fold.how in fold.FOLDS:
            fold.FOLDS[gate.fold.how](derived, gate, observed, run)
        elif gate.fold.how == "setting":
            registry.called(registry.SETTING)(derived, gate, observed)
    if rising := [gate for gate in gates if gate.fold.how in ("rise", "share")]:
        registry.called(registry.RISES)(derived, rising, observed)
    computed = [gate.fold.facts[0] for gate in gates if gate.fold.how == "computed" and gate.fold.facts]
    for name in dict.fromkeys(computed):
        function(name)(derived, observed, run)
    return derived


def function(name: str) -> Function:
    """Find the function driver_log of the domain gpu by `gpu.driver_log`."""
    domain, _, called = name.partition(".")
    return cast(Function, registry.called(f"{registry.DOMAINS[domain]}:{called}"))
