"""Paths of a run: its files, its attempts, the runs of a playbook. One attempt writes one folder."""

import glob
import hashlib
import re
from pathlib import Path

from bringup.kernel.plan.phases import Phase

REPOSITORY = Path(__file__).resolve().parents[3]

RUN, CLOSED, PROFILE, RAW = "run.json", "closed.json", "profile.yaml", "raw"
SIGNATURE = ".sig"  # what the name of a signature adds to that of its file: closed.json.sig
SITE = "site.yaml"  # only where a site file was used
OWN_CHECKS = "own_checks.json"  # only where it names checks of its own: as they were planned
OBSERVATIONS, VERDICTS, REPORT = "observations.json", "verdicts.json", "report.md"
RUN_ARGS, METRICS = "run_args.json", "metrics.json"
CONTINUED = "continued.json"
PRIVATE = "private"  # for the owner alone, until the run is closed; neither evidence nor ever packed
SECRET = f"{PRIVATE}/secret"  # what its ranks know each other by (probes/arrival.py)
JOB_AFTER = "raw/scontrol-job.txt"  # only of a run that was not closed
BATCH_LOG = "raw/batch.log"  # the screen of the job or script that wrote the run
NOT_OPENED = "raw/not-opened.txt"  # only of a run that its script did not open: why, in one line
PLAYBOOK, SWEEP, DRILLS, PREFLIGHT, SOAK = "playbook.json", "sweep.json", "drill.json", "preflight.json", "soak.json"
PACKED = "evidence"  # in a zip of `bringup report`: the folder of the runs, evidence/NUMBER-PHASE, beside playbook/NAME
_RESULTS = Path("validation/results")  # from the root of a tree
PLAYBOOKS, SWEEPS, PREFLIGHTS = _RESULTS / "playbook", _RESULTS / "sweep", _RESULTS / "preflight"
SOAKS = _RESULTS / "soak"
UNREADABLE = "cannot be read: "  # stands instead of a checksum; the reason follows
_ATTEMPT = re.compile(r"(?:-s(?P<submission>\d+))?(?:-r(?P<restarts>\d+))?")


def folder_of(phase: Phase, name: str, tree: Path | None = None) -> Path:
    """Return the folder of the run called `name` of this phase."""
    return (tree or REPOSITORY) / phase.results / (f"{phase.stem}-{name}" if phase.is_training else name)


def attempt_name(name: str, number: int = 1, restarts: int = 0) -> str:
    """Name the run of a phase's `number`-th job (-s2, …), after that many requeues (-r1, …)."""
    return name + (f"-s{number}" if number > 1 else "") + (f"-r{restarts}" if restarts else "")


def is_there(folder: Path, name: str) -> bool:
    """Say whether a file that another host writes exists: `closed.json`, `raw/moment`. The folder is listed for this:
    an NFS client caches a missing name for half a minute, but reads a folder again when it is opened."""
    for part in Path(name).parts:
        try:
            if folder / part not in folder.iterdir():
                return False
        except (FileNotFoundError, NotADirectoryError):
            return False
        folder /= part
    return True


def attempts(phase: Phase, name: str) -> list[Path]:
    """Find the folders of this run, in order: each submission (-s2, …) followed by its requeues (-r1, … -r10)."""
    first = folder_of(phase, name)
    numbered: list[tuple[int, int, Path]] = []
    for path in first.parent.glob(f"{glob.escape(first.name)}*"):
        mark = _ATTEMPT.fullmatch(path.name.removeprefix(first.name))
        if mark is not None and path.is_dir():
            numbered.append((int(mark["submission"] or 1), int(mark["restarts"] or 0), path))
    return [path for _, _, path in sorted(numbered)]


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def holds(folder: Path, record: str) -> bool:
    """Say whether it holds the record: no, too, where we may not look; who reads it as a run's next says why."""
    try:
        return (folder / record).is_file()
    except OSError:
        return False
