"""Where everything of a run lies: its files, its attempts, a playbook's runs. One attempt writes one folder."""

from __future__ import annotations

import glob
import hashlib
import re
from pathlib import Path

from bringup.errors import ProfileError, RecordError, RunError
from bringup.plan import profile as profiles
from bringup.plan.phases import PHASES, Phase
from bringup.records import Observations, Run, Verdicts, read_record, write_record, write_text

REPOSITORY = Path(__file__).resolve().parents[2]

RUN, CLOSED, PROFILE = "run.json", "closed.json", "profile.yaml"
OBSERVATIONS, VERDICTS, REPORT = "observations.json", "verdicts.json", "report.md"
RUN_ARGS, METRICS = "run_args.json", "metrics.json"
CONTINUED = "continued.json"
JOB_AFTER = "raw/scontrol-job.txt"  # only of a run that was not closed
BATCH_LOG = "raw/batch.log"  # the screen of the job or script that wrote the run
NOT_OPENED = "raw/not-opened.txt"  # only of a run that its script did not open: why, in one line
REFERENCE_ARGS, REFERENCE_METRICS = "raw/reference.run_args.json", "raw/reference.metrics.json"

UNREADABLE = "cannot be read: "  # in the place of a checksum; why follows
_ATTEMPT = re.compile(r"(?:-s(?P<submission>\d+))?(?:-r(?P<restarts>\d+))?")


def folder_of(phase: Phase, name: str) -> Path:
    """Where the run called `name` of this phase lives."""
    return REPOSITORY / phase.results / (f"{phase.stem}-{name}" if phase.is_training else name)


def submission_name(name: str, number: int) -> str:
    """Of the run that the `number`-th job of a phase writes: another mark than -r, which a requeued job adds."""
    return name if number == 1 else f"{name}-s{number}"


def requeue_name(name: str, restarts: int) -> str:
    """Of the attempt that a job writes when Slurm has requeued it so often."""
    return name if restarts == 0 else f"{name}-r{restarts}"


def attempts(phase: Phase, name: str) -> list[Path]:
    """Folders of this run that exist, in order: every submission (-s2, …), and of each its requeues (-r1, … -r10)."""
    first = folder_of(phase, name)
    found: list[tuple[int, int, Path]] = []
    for path in first.parent.glob(f"{glob.escape(first.name)}*"):
        mark = _ATTEMPT.fullmatch(path.name.removeprefix(first.name))
        if mark is not None and path.is_dir():
            found.append((int(mark["submission"] or 1), int(mark["restarts"] or 0), path))
    return [path for _, _, path in sorted(found)]


def checksums(folder: Path) -> dict[str, str]:
    """Of everything that verdicts are made of: the plan, raw/, and what training recorded. Of the profile, the plan holds one.
    In the place of a digest: UNREADABLE and why."""
    records = [folder / name for name in (RUN, RUN_ARGS, METRICS)]
    found = {
        path.relative_to(folder).as_posix(): _digest(path) for path in (*records, *sorted((folder / "raw").rglob("*")))
    }
    return {name: digest for name, digest in found.items() if digest is not None}


def _digest(path: Path) -> str | None:
    """None where there is no regular file."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        return f"{UNREADABLE}{error.strerror}"


def load(folder: Path) -> Run:
    """Raises RunError when the folder is not a run's."""
    if not (folder / RUN).is_file():
        raise RunError(f"{folder}: not a results folder (no {RUN}); give the folder that a phase script printed")
    try:
        run = read_record(folder / RUN, Run)
    except RecordError as error:
        raise RunError(str(error)) from error
    if run.phase not in PHASES:
        raise RunError(f"{folder / RUN}: phase {run.phase!r} is unknown to this version; it knows {', '.join(PHASES)}")
    return run


def load_profile(folder: Path, run: Run | None = None) -> profiles.Profile:
    """The expectations the run was opened with. Raises ProfileError."""
    path = folder / PROFILE
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path}: cannot be read ({error}); judge it with --profile NAME") from error
    if sha256(text) != (load(folder) if run is None else run).profile_sha256:
        raise ProfileError(f"{path}: changed since the run was opened; judge it with --profile NAME")
    return profiles.parse(text, str(path))


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def save_judgement(folder: Path, observations: Observations, verdicts: Verdicts, report: str) -> None:
    """Derived files: rebuilt by every judgement."""
    write_record(folder / OBSERVATIONS, observations, replace=True)
    write_record(folder / VERDICTS, verdicts, replace=True)
    write_text(folder / REPORT, report, replace=True)
