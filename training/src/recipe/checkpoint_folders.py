"""The folders of checkpoints: which are whole, which attempts of a job left some, and how old ones are removed."""

from __future__ import annotations

import shutil
from pathlib import Path

from bringup.records import Run, read_record

RECORD = "checkpoint.json"


def folder_of(step: int) -> str:
    return f"step-{step:08d}"


def checkpoints_in(root: Path) -> tuple[list[Path], list[str]]:
    """(finished checkpoints below `root`, newest first; names of unfinished saves)."""
    if not root.is_dir():
        return [], []
    names = sorted((path for path in root.iterdir() if path.is_dir()), reverse=True)
    return (
        [path for path in names if path.name.startswith("step-") and (path / RECORD).is_file()],
        [path.name for path in names if path.name.endswith(".part")],
    )


def attempts(run_dir: Path) -> list[Path]:
    """The run and the attempts of the same job before it, newest first: a requeued job has a folder per attempt."""
    folders = [run_dir]
    while (folders[-1] / "run.json").is_file():
        before = read_record(folders[-1] / "run.json", Run).continues
        if before is None or (folder := run_dir.parent / before) in folders:
            break
        folders.append(folder)
    return folders


def keep_newest(root: Path, count: int) -> None:
    """Remove all finished checkpoints but the newest; rank 0 only.

    Each is renamed first: a half removed checkpoint must not look like a whole one.
    """
    for path in checkpoints_in(root)[0][count:]:
        remove(path)


def remove(path: Path) -> None:
    going = path.with_name(f".{path.name}.removed")
    path.rename(going)
    shutil.rmtree(going, ignore_errors=True)
