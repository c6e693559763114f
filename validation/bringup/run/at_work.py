"""What a step is expected to take, and what it is busy with. Both are for a person who waits: nothing depends on them.

A look is one listing of a folder, so that it costs a shared filesystem next to nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from bringup import results
from bringup.errors import RecordError
from bringup.plan.phases import Phase
from bringup.records import Outcome, Playbook, files, read_record

PROGRESS = "progress.jsonl"  # of a training: a line for each step
_BESIDE = ("monitor", "counters")  # files that are written beside the work
_LOOKED_AT = 8  # earlier playbook runs, the newest first


def expected(phase: Phase, nodes: Sequence[str]) -> str:
    """`18 s in 20261124-…`, of the newest run on as many nodes in which it passed; else what the plan says."""
    place = results.REPOSITORY / results.PLAYBOOKS
    for path in sorted(place.glob(f"*/{results.PLAYBOOK}"), reverse=True)[:_LOOKED_AT]:
        try:
            playbook = read_record(path, Playbook)
        except RecordError:
            continue
        for step in playbook.steps:
            is_good = step.outcome in (Outcome.PASS, Outcome.WARN) and step.folder is not None
            if step.phase == phase.stem and is_good and len(playbook.nodes) == len(nodes):
                return f"{step.seconds:.0f} s in {playbook.name}"
    return minutes(phase)


def minutes(phase: Phase) -> str:
    least, most = phase.minutes
    return f"{least} min expected" if least == most else f"{least} to {most} min expected"


def busy_with(phase: Phase, name: str) -> str:
    """`step 12 of 60` of a training; else the part whose files are the newest: `collectives-4`. Empty: not known."""
    try:
        folder = next(reversed(results.attempts(phase, name)), None)
        if folder is None:
            return ""
        if not results.is_there(folder, f"raw/{PROGRESS}" if phase.is_training else "raw"):
            return ""
        return _last_step(folder / "raw" / PROGRESS) if phase.is_training else _newest_part(folder / "raw")
    except OSError:
        return ""


def _newest_part(raw: Path) -> str:
    parts = [path for path in raw.iterdir() if path.suffix == ".err" and not path.stem.startswith(_BESIDE)]
    return max(parts, key=lambda path: path.lstat().st_mtime).stem if parts else ""


def _last_step(progress: Path) -> str:
    try:
        lines = files.read_text(progress).splitlines()
        last = json.loads(lines[-1])
        return f"step {int(last['step'])} of {int(last['of'])}"
    except (OSError, ValueError, KeyError, TypeError, IndexError):  # not begun, or a line that is being written
        return ""
