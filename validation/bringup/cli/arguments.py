"""Types of arguments, and the line on standard error. Nothing here loads the rest of the package: it would double the
time of each start."""

from __future__ import annotations

import argparse
import math
import re
import sys
from typing import TYPE_CHECKING

from bringup.characters import plain
from bringup.cli import usage
from bringup.errors import UsageError
from bringup.plan.phases import PHASES, Phase

if TYPE_CHECKING:
    from bringup.plan.profile import Profile
    from bringup.run.waiting import Awaited

CANNOT_TELL = 2  # the exit code


def complain(message: str) -> None:
    print(f"bringup: {plain(message)}", file=sys.stderr)


def natural(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 or more")
    return int(text)


def whole(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not 0 or more")
    return int(text)


def share(text: str) -> float:
    value = _number(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share: more than 0, at most 1")
    return value


def positive(text: str) -> float:
    value = _number(text)
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not more than 0")
    return value


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def awaited(text: str) -> Awaited:
    """Read a job to wait for. An empty job id: it was refused, and nothing is waited for."""
    from bringup.run.waiting import Awaited

    match = re.fullmatch(r"([\w.-]+)=([\d_]*)(?:=(\d+))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not FILE=JOBID[=SECONDS]")
    return Awaited(match[1], match[2], float(match[3] or 90))


class RunName(str):
    """A run as it was named. It is looked for when all options are known to be right."""

    what = ""  # it has to be a playbook, a sweep or a drill run


def run_named(name: str, what: str = "") -> RunName:
    named = RunName(name)
    named.what = what
    return named


def with_runs(value: object) -> object:
    """Put folders in place of names of runs. Raises RunError."""
    if isinstance(value, list):
        return [with_runs(each) for each in value]
    if not isinstance(value, RunName):
        return value
    from bringup.report import known_runs

    return known_runs.called(value, value.what)


def node_called(name: str) -> str:
    """Read the name of a node. Raises UsageError for a run that stands where the node belongs."""
    if "/" in name or re.match(r"\d{8}-\d{6}|last$", name):
        raise UsageError(f"{name}: a run, and the node comes first: bringup ticket NODE RUN")
    return name


def phase_called(name: str) -> Phase:
    """Find a phase by its name. Raises UsageError."""
    if name not in PHASES:
        guess = usage.meant(name, PHASES) or f"; there are {', '.join(PHASES)}"
        raise UsageError(f"no phase is called {name!r}{guess}")
    return PHASES[name]


def phases_called(name: str) -> list[str]:
    """Find one by its name; or those of a number of the playbook (`3`, `phase3`), of a strategy, or all trainings.
    Raises UsageError."""
    word = name.removeprefix("phase").strip("-_ ")
    several = [
        stem
        for stem, phase in PHASES.items()
        if word in (str(phase.number), phase.strategy, "training" if phase.is_training else None)
    ]
    return [phase_called(name).stem] if name in PHASES or not several else several


def named_profile(name: str | None) -> Profile | None:
    """Load the profile that runs are judged with which are there already. None: each with its own copy. Raises
    UsageError, FileError."""
    from bringup.plan import auto, catalogue

    profile = None if name is None else catalogue.load_profile(name)
    if profile is not None and auto.is_open(profile):
        raise UsageError(f"--profile {name}: each run keeps the numbers that it was opened with; leave --profile out")
    return profile
