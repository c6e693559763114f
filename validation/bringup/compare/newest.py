"""The newest trainings of this checkout, which are compared where none was named."""

from pathlib import Path

from bringup.kernel import results
from bringup.kernel.errors import RecordError, RunError
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import read_record
from bringup.report import run_folders
from bringup.report.known_runs import Known, newest_first
from bringup.training.records import RunArgs, differing_fields


def trainings() -> list[Path]:
    """Find the newest trainings: a playbook or sweep that trained, or, of runs started one by one, the newest of each
    phase that trained as the newest of all. Raises RunError where there is none."""
    for known in newest_first():
        if known.what in ("playbook", "sweep") and _trained(known):
            return [known.folder]
        if (like := _args(known)) is not None:
            return _alike(like)
    raise RunError("no training that finished is here yet: sbatch training/slurm/run_1gpu.sbatch, then the others")


def _trained(known: Known) -> bool:
    try:
        runs = run_folders.find([known.folder])
    except (RecordError, RunError, OSError):
        return False
    return any(results.holds(folder, results.METRICS) for folder in runs.folders)


def _args(known: Known) -> RunArgs | None:
    """Read what a phase trained. None: it is none that trained to its end."""
    if known.what not in PHASES or not results.holds(known.folder, results.METRICS):
        return None
    try:
        return read_record(known.folder / results.RUN_ARGS, RunArgs)
    except (RecordError, OSError):
        return None


def _alike(like: RunArgs) -> list[Path]:
    newest: dict[str, Path] = {}
    for known in newest_first():
        args = _args(known)
        if args is not None and not differing_fields(like, args):
            newest.setdefault(known.what, known.folder)
    return [newest[stem] for stem in PHASES if stem in newest]
