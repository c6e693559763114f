"""The folders of checkpoints: which are whole, which attempts of a job left some, and how old ones are removed."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

from bringup.records import Run, read_record

RECORD, PREFIX = "checkpoint.json", "step-"


def folder_of(step: int) -> str:
    return f"{PREFIX}{step:08d}"


def step_of(folder: Path) -> int:
    return int(folder.name.removeprefix(PREFIX))


def newest_first(roots: Iterable[Path]) -> list[Path]:
    """Return the finished checkpoints in these folders, the latest step first, without what a killed save left."""
    finished = [record.parent for root in roots for record in root.glob(f"{PREFIX}{8 * '[0-9]'}/{RECORD}")]
    return sorted(finished, key=step_of, reverse=True)


def attempts(run_dir: Path) -> list[Path]:
    """Return the run and the attempts of its job before it, newest first: a requeued job has a folder per attempt."""
    folders = [run_dir]
    while (folders[-1] / "run.json").is_file():
        before = read_record(folders[-1] / "run.json", Run).continues
        if before is None or (folder := run_dir.parent / before) in folders:
            break
        folders.append(folder)
    return folders


def remove(path: Path) -> None:
    """Rename it first: a half removed checkpoint must not look like a whole one."""
    going = path.with_name(f".{path.name}.removed")
    path.rename(going)
    shutil.rmtree(going, ignore_errors=True)
