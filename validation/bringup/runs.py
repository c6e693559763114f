"""Folders of runs: opened with a plan, closed with an exit code, read back. One attempt writes one folder."""

from __future__ import annotations

import contextlib
import glob
import hashlib
import os
import secrets
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path

from bringup import plan as planning
from bringup import profile as profiles
from bringup.phases import PHASES, REPOSITORY, Phase
from bringup.records import (
    Closed,
    Continued,
    Observations,
    RecordError,
    Run,
    Verdicts,
    read_record,
    write_record,
    write_text,
)

RUN, CLOSED, PROFILE = "run.json", "closed.json", "profile.yaml"
OBSERVATIONS, VERDICTS, REPORT = "observations.json", "verdicts.json", "report.md"
RUN_ARGS, METRICS = "run_args.json", "metrics.json"
CONTINUED = "continued.json"
JOB_AFTER = "raw/scontrol-job.txt"  # only of a run that was not closed
NOT_OPENED = "raw/not-opened.txt"  # only of a run that its script did not open: why, in one line
REFERENCE_ARGS, REFERENCE_METRICS = "raw/reference.run_args.json", "raw/reference.metrics.json"


class RunError(Exception):
    """A run that cannot be opened or read. One line: what, where, what to do."""


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _git(*arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(REPOSITORY), *arguments], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.strip() if result.returncode == 0 else None


def default_name() -> str:
    """Time, job id (or chance), and -rN for a requeued job, which must not write into its first attempt's folder.

    Not the pid: in a namespace of its own it is small, and two clusters of one second would meet.
    """
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    restarts = os.environ.get("SLURM_RESTART_COUNT", "0")
    job = os.environ.get("SLURM_JOB_ID")
    name = os.environ.get("BRINGUP_RUN_NAME") or f"{stamp}-{f'job{job}' if job else secrets.token_hex(3)}"
    return f"{name}-r{restarts}" if restarts not in ("", "0") else name


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


def git_commit() -> str | None:
    return _git("rev-parse", "HEAD")


def open_run(
    phase: Phase,
    *,
    nodes: list[str],
    gpus_per_node: int,
    ranks_per_node: int,
    profile: profiles.Profile,
    argv: list[str],
    results: Path | None = None,
    name: str | None = None,
) -> Path:
    """Create the run's folder and write its plan. Raises RunError."""
    if len(nodes) < phase.min_nodes:
        raise RunError(
            f"{phase.stem} needs at least {phase.min_nodes} nodes, {len(nodes)} requested; "
            f"sbatch --nodes={phase.min_nodes} {phase.script}"
        )
    if phase.max_nodes is not None and len(nodes) > phase.max_nodes:
        raise RunError(
            f"{phase.stem} runs on {phase.max_nodes} node, {len(nodes)} requested; "
            f"sbatch --nodes={phase.max_nodes} {phase.script}"
        )
    folder = folder_of(phase, name or default_name())
    if results is not None:
        folder = results / folder.name
    not_applicable = planning.excluded_here(phase.stem, profile.not_applicable)
    before = _attempt_before(folder.parent, phase)
    status = _git("status", "--porcelain")
    run = Run(
        phase=phase.stem,
        name=folder.name,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        ranks_per_node=ranks_per_node,
        profile=profile.name,
        profile_sha256=_sha256(profiles.dump(profile)),
        planned=planning.plan(phase.stem, nodes, ranks_per_node, {entry.gate for entry in not_applicable}),
        not_applicable=not_applicable,
        argv=argv,
        git_commit=git_commit(),
        git_dirty=None if status is None else bool(status),
        slurm_job_id=os.environ.get("SLURM_JOB_ID"),
        slurm_restart_count=int(os.environ.get("SLURM_RESTART_COUNT") or 0),
        opened_at=now(),
        continues=None if before is None else before.name,
    )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir()
        (folder / "raw").mkdir()
    except OSError as error:
        where = error.filename or folder
        raise RunError(f"{where}: cannot be created ({error.strerror}); a run has a folder of its own") from error
    write_text(folder / PROFILE, profiles.dump(profile))
    write_record(folder / RUN, run)
    if before is not None and not (before / CONTINUED).exists():
        with contextlib.suppress(
            OSError, RecordError
        ):  # a link for readers; the attempt before may be read-only by now
            write_record(before / CONTINUED, Continued(run=folder.name))
    if phase.is_training and phase.strategy != "single":
        _keep_reference(folder)
    return folder


def _attempt_before(results: Path, phase: Phase) -> Path | None:
    """The folder that this Slurm job wrote before it was requeued, the newest one. None: it is the first attempt."""
    job, restarts = os.environ.get("SLURM_JOB_ID"), int(os.environ.get("SLURM_RESTART_COUNT") or 0)
    if job is None or restarts == 0:
        return None
    prefix = f"{phase.stem}-" if phase.is_training else ""
    found: list[tuple[str, int, Path]] = []
    for path in results.glob(f"{prefix}{glob.escape(os.environ.get('BRINGUP_RUN_NAME', ''))}*/{RUN}"):
        with contextlib.suppress(RecordError):
            run = read_record(path, Run)
            if (run.phase, run.slurm_job_id) == (phase.stem, job) and run.slurm_restart_count < restarts:
                found.append((run.opened_at, run.slurm_restart_count, path.parent))
    return max(found)[2] if found else None


def _keep_reference(folder: Path) -> None:
    """Copy the newest one-GPU run's records into raw/, so that the copied folder can be judged anywhere."""
    given = os.environ.get("BRINGUP_REFERENCE")
    if given and not (Path(given) / METRICS).is_file():
        raise RunError(f"BRINGUP_REFERENCE={given}: no {METRICS} there; give the folder of a finished run_1gpu run")
    candidates = (
        [Path(given)] if given else sorted(folder.parent.glob("run_1gpu-*"), key=lambda path: path.stat().st_mtime)
    )
    complete = [path for path in candidates if (path / METRICS).is_file() and (path / RUN_ARGS).is_file()]
    if complete:
        shutil.copyfile(complete[-1] / METRICS, folder / REFERENCE_METRICS)
        shutil.copyfile(complete[-1] / RUN_ARGS, folder / REFERENCE_ARGS)


def close_run(folder: Path, exit_code: int) -> None:
    """Raises RunError when it is no open run."""
    load(folder)
    try:
        write_record(folder / CLOSED, Closed(exit_code=exit_code, closed_at=now(), files=checksums(folder)))
    except RecordError as error:
        raise RunError(f"{folder}: already closed") from error


def checksums(folder: Path) -> dict[str, str]:
    """Of everything that verdicts are made of: the plan, raw/, and what training recorded. Of the profile, the plan holds one."""
    records = [folder / name for name in (RUN, RUN_ARGS, METRICS)]
    files = [path for path in (*records, *sorted((folder / "raw").rglob("*"))) if path.is_file()]
    return {path.relative_to(folder).as_posix(): _digest(path) for path in files}


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        return f"cannot be read: {error.strerror}"


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


def load_profile(folder: Path) -> profiles.Profile:
    """The expectations the run was opened with. Raises ProfileError."""
    path = folder / PROFILE
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise profiles.ProfileError(f"{path}: cannot be read ({error}); judge it with --profile NAME") from error
    if _sha256(text) != load(folder).profile_sha256:
        raise profiles.ProfileError(f"{path}: changed since the run was opened; judge it with --profile NAME")
    return profiles.parse(text, str(path))


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def save_judgement(folder: Path, observations: Observations, verdicts: Verdicts, report: str) -> None:
    """Derived files: rebuilt by every judgement."""
    write_record(folder / OBSERVATIONS, observations, replace=True)
    write_record(folder / VERDICTS, verdicts, replace=True)
    write_text(folder / REPORT, report, replace=True)
