"""What a step is expected to take, and what it is busy with. Both are for a person who waits: nothing depends on them.

A look is one listing of a folder, so that it costs a shared filesystem next to nothing.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bringup.kernel import results
from bringup.kernel.errors import RecordError, RunError
from bringup.kernel.plan.phases import Phase
from bringup.kernel.records import Outcome, files, read_record
from bringup.kernel.run_folder import RunFolder
from bringup.report.campaigns import Playbook

PROGRESS = "progress.jsonl"  # of a training: a line for each step
_BESIDE = ("monitor", "counters")  # files that are written beside the work
_PAIR = re.compile(r"pairs-\d+-\d+-(.+)")  # repeat, round, nodes
_SCALE = re.compile(r"([a-z_]+)-(\d+)")
_TINY_MINUTES = (1, 3)
_LOOKED_AT = 8  # earlier playbook runs, the newest first


class Expected(NamedTuple):
    """What a step should take, s: a range of the plan, or as it took before, twice."""

    least: float
    most: float

    @property
    def words(self) -> str:
        if self.least == self.most:
            return f"about {span(self.most)}"
        return f"{self.least / 60:.0f} to {self.most / 60:.0f} min"

    def after(self, elapsed: float, job: str = "") -> str:
        """Say `17 s of about 60 s`; of one that is late, since when, and what says why."""
        if elapsed <= self.most * (2 if self.least == self.most else 1):
            return f"{span(elapsed)} of {self.words}"
        why = f"; bringup why {job}" if job else ""
        return f"{span(elapsed)}, overdue since {span(elapsed - self.most)}{why}"


def span(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def expected(phase: Phase, nodes: Sequence[str], options: str = "") -> Expected:
    """Expect as long as the newest passed run on as many nodes; else what the plan says. options: of the trainings; the
    plan's minutes are of the model of a few billion parameters, and the tiny one takes what a start takes."""
    place = results.REPOSITORY / results.PLAYBOOKS
    for path in sorted(place.glob(f"*/{results.PLAYBOOK}"), reverse=True)[:_LOOKED_AT]:
        try:
            playbook = read_record(path, Playbook)
        except RecordError:
            continue
        for step in playbook.steps:
            is_good = step.outcome in (Outcome.PASS, Outcome.WARN) and step.folder is not None
            if step.phase == phase.stem and is_good and len(playbook.nodes) == len(nodes):
                return Expected(step.seconds, step.seconds)
    is_tiny = phase.is_training and "--model" not in options.replace("--model tiny", "")
    least, most = _TINY_MINUTES if is_tiny else phase.minutes
    return Expected(60.0 * least, 60.0 * most)


def busy_with(phase: Phase, name: str) -> str:
    """Say `step 12 of 60` of a training; else which part has the newest files, `pair 3 of 6`. Empty: not known."""
    try:
        folder = next(reversed(results.attempts(phase, name)), None)
        if folder is None or not results.is_there(folder, f"raw/{PROGRESS}" if phase.is_training else "raw"):
            return ""
        return _last_step(folder / "raw" / PROGRESS) if phase.is_training else _newest_part(folder)
    except (OSError, RunError):
        return ""


def _newest_part(folder: Path) -> str:
    raw = folder / "raw"
    parts = {path.stem: path for path in raw.iterdir() if path.suffix == ".err" and not path.stem.startswith(_BESIDE)}
    newest = max(parts, key=lambda stem: parts[stem].lstat().st_mtime, default="")
    if _PAIR.match(newest):
        pairs = {match[1] for stem in parts if (match := _PAIR.match(stem))}
        planned = len(RunFolder(folder).run.planned.get("nccl.pair.link", []))
        return f"pair {len(pairs)}" + (f" of {planned}" if planned >= len(pairs) else "")
    scale = _SCALE.fullmatch(newest)
    return newest if scale is None else f"{scale[1]} on {scale[2]} node{'s'[: scale[2] != '1']}"


def _last_step(progress: Path) -> str:
    try:
        last = json.loads(files.read_text(progress).splitlines()[-1])
        return f"step {int(last['step'])} of {int(last['of'])}"
    except (OSError, ValueError, KeyError, TypeError, IndexError):  # not begun, or a line that is being written
        return ""
