"""Paths of a run: its files, its attempts, the runs of a playbook. One attempt writes one folder."""

import glob
import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

from bringup.kernel.errors import FileError, RecordError, RunError
from bringup.kernel.plan import profile as profiles
from bringup.kernel.plan.phases import PHASES, Phase
from bringup.kernel.records import Closed, Observations, Run, Verdicts, files
from bringup.kernel.records.base import parse_record, read_record, read_record_text, write_record, write_text

REPOSITORY = Path(__file__).resolve().parents[3]

RUN, CLOSED, PROFILE = "run.json", "closed.json", "profile.yaml"
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


@dataclass(frozen=True)
class Seal:
    """The content of closed.json, read once: the signature is verified for the bytes that were judged."""

    content: str = ""
    closed: Closed | None = None
    why: str | None = None  # closed.json is there and cannot be read


def read_seal(folder: Path) -> Seal | None:
    """Read closed.json; None: there is none."""
    path = folder / CLOSED
    if not os.path.lexists(path):
        return None
    try:
        content = read_record_text(path, Closed)
        return Seal(content, parse_record(path, content, Closed))
    except RecordError as error:
        return Seal(why=str(error).replace(f"{folder}/", ""))


def checksums(folder: Path) -> dict[str, str]:
    """Return checksums of all evidence: the plan, the site and its checks, raw/, and training's records. The profile's
    checksum is in the plan; closed.json holds the checksums, and its signature comes after it. For a file that cannot
    be read: UNREADABLE and the reason.

    They show a change to who does not expect one. Who may write to the folder can make them anew: only a signature
    shows that (run/signature.py)."""
    records = [folder / name for name in (RUN, SITE, OWN_CHECKS, RUN_ARGS, METRICS)]
    paths, _ = files.below(folder / "raw")
    digests = {path.relative_to(folder).as_posix(): _digest(path, folder) for path in (*records, *paths)}
    return {name: digest for name, digest in digests.items() if digest is not None}


def _digest(path: Path, folder: Path) -> str | None:
    """Return the digest of a file. None: not a regular file."""
    try:
        return files.checksum(path, folder)
    except (FileNotFoundError, files.NotAFile):
        return None
    except OSError as error:
        return f"{UNREADABLE}{error.strerror}"


def load(folder: Path) -> Run:
    """Load a run from its folder. Raises RunError when the folder is not a run's."""
    try:
        (folder / RUN).lstat()
        run = read_record(folder / RUN, Run)
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(f"{folder}: not a results folder (no {RUN}); `bringup runs` lists what there is") from None
    except OSError as error:
        raise RunError(f"{folder}: cannot be read ({error.strerror}); read it as its owner") from error
    except RecordError as error:
        raise RunError(str(error)) from error
    if run.phase not in PHASES:
        raise RunError(f"{folder / RUN}: phase {run.phase!r} is unknown to this version; it knows {', '.join(PHASES)}")
    return run


def load_profile(folder: Path, run: Run | None = None) -> profiles.Profile:
    """Load the expectations the run was opened with. Raises FileError."""
    path = folder / PROFILE
    try:
        text = files.read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise FileError(f"{path}: cannot be read ({error}); judge it with --profile NAME") from error
    try:
        if sha256(text) != (load(folder) if run is None else run).profile_sha256:
            raise FileError(f"{path}: changed since the run was opened")
        return profiles.parse(text, str(path), strict=False)
    except FileError as error:
        raise FileError(f"{error}; judge it with --profile NAME") from error


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def holds(folder: Path, record: str) -> bool:
    """Say whether it holds the record: no, too, where we may not look; who reads it as a run's next says why."""
    try:
        return (folder / record).is_file()
    except OSError:
        return False


def save_judgement(folder: Path, observations: Observations, verdicts: Verdicts, report: str) -> None:
    """Write the derived files; every judgement rebuilds them."""
    write_record(folder / OBSERVATIONS, observations, replace=True)
    write_record(folder / VERDICTS, verdicts, replace=True)
    write_text(folder / REPORT, report, replace=True)
