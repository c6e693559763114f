"""Where everything of a run lies: its files, its attempts, a playbook's runs. One attempt writes one folder."""

from __future__ import annotations

import glob
import hashlib
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
NOT_OPENED = "raw/not-opened.txt"  # only of a run that its script did not open: why, in one line
REFERENCE_ARGS, REFERENCE_METRICS = "raw/reference.run_args.json", "raw/reference.metrics.json"

UNREADABLE = "cannot be read: "  # in the place of a checksum; why follows


def folder_of(phase: Phase, name: str) -> Path:
    """Where the run called `name` of this phase lives."""
    return REPOSITORY / phase.results / (f"{phase.stem}-{name}" if phase.is_training else name)


def attempts(phase: Phase, name: str) -> list[Path]:
    """Folders of this run that exist, in order: a requeued job wrote into one of its own, -r1, and by the tenth time -r10."""
    first = folder_of(phase, name)
    again = {
        path.name.removeprefix(f"{first.name}-r"): path
        for path in first.parent.glob(f"{glob.escape(first.name)}-r[0-9]*")
    }
    in_order = sorted((number for number in again if number.isdecimal()), key=int)
    return [path for path in (first, *(again[number] for number in in_order)) if path.is_dir()]


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
