"""Judge a run, show it, and write what is derived beside its evidence. One place for the phase scripts and for `bringup run`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from bringup import judge, results
from bringup.plan.profile import Profile
from bringup.records import Run, Verdicts
from bringup.report import figures, text


def judge_and_save(folder: Path, profile: Profile | None = None, notes: Sequence[str] = ()) -> tuple[Run, Verdicts]:
    """Writes observations.json, verdicts.json, report.md and its pictures; what cannot be written is said."""
    observations, verdicts = judge.judge_folder(folder, profile)
    verdicts = verdicts.model_copy(update={"notes": [*notes, *verdicts.notes]})
    run = results.load(folder)
    used = results.load_profile(folder) if profile is None else profile
    try:
        drawn = figures.draw(folder, observations.observations, used)
        written = text.markdown(run, verdicts, observations.observations) + figures.markdown(drawn)
        results.save_judgement(folder, observations, verdicts, written)
    except OSError as error:  # a read-only copy: the verdict stands
        print(f"bringup: {folder}: no report was written: {error.strerror}", file=sys.stderr)
    return run, verdicts


def judge_and_show(folder: Path, profile: Profile | None) -> int:
    """The same, and one screen. Returns the exit code."""
    run, verdicts = judge_and_save(folder, profile)
    print(text.screen(folder, run, verdicts))
    return verdicts.outcome.exit_code
