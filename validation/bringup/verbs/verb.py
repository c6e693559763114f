"""What several verbs of the command line need."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from bringup import figures, judge, report, runs
from bringup import profile as profiles
from bringup.gates import GATES

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    Verbs = object

CANNOT_TELL = 2


def load_profile(name: str) -> profiles.Profile:
    """Loaded and checked against the gates there are, before anything runs."""
    profile = profiles.load(name)
    profiles.check_units(profile, {gate.id: gate.unit for gate in GATES.values()})
    return profile


def judge_and_show(folder: Path, profile: profiles.Profile | None) -> int:
    """Judge, print one screen, write what is derived beside the evidence. Returns the exit code."""
    observations, verdicts = judge.judge_folder(folder, profile)
    run = runs.load(folder)
    print(report.screen(folder, run, verdicts))
    try:
        drawn = figures.draw(
            folder, observations.observations, runs.load_profile(folder) if profile is None else profile
        )
        written = report.markdown(run, verdicts, observations.observations) + figures.markdown(drawn)
        runs.save_judgement(folder, observations, verdicts, written)
    except OSError as error:  # a read-only copy: the verdict stands, and it is said that no report was written
        print(f"bringup: {folder}: no report was written: {error.strerror}", file=sys.stderr)
    return verdicts.outcome.exit_code


def natural(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 or more")
    return int(text)
