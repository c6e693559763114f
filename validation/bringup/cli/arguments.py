"""Types of arguments, and the line on standard error. Nothing here loads the rest of the package: it would double the
time of each start."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from bringup.kernel.characters import meant, plain
from bringup.kernel.errors import UsageError
from bringup.kernel.plan.phases import PHASES, Phase

if TYPE_CHECKING:
    from bringup.kernel.plan.profile import Profile
    from bringup.run.waiting import Awaited

CANNOT_TELL = 2  # the exit code
N = TypeVar("N", int, float)


def complain(message: str) -> None:
    print(f"bringup: {plain(message)}", file=sys.stderr)


def _number(read: Callable[[str], N], is_right: Callable[[N], bool], words: str) -> Callable[[str], N]:
    def number(text: str) -> N:
        try:
            if is_right(value := read(text)):
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} is not {words}")

    return number


natural = _number(int, lambda value: value >= 1, "1 or more")
whole = _number(int, lambda value: value >= 0, "0 or more")
share = _number(float, lambda value: 0 < value <= 1, "a share: more than 0, at most 1")
positive = _number(float, lambda value: 0 < value < math.inf, "more than 0")


def awaited(text: str) -> Awaited:
    """Read a job to wait for. An empty job id: it was refused, and nothing is waited for."""
    from bringup.run.waiting import Awaited

    match = re.fullmatch(r"([\w.-]+)=([\d_]*)(?:=(\d+))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not FILE=JOBID[=SECONDS]")
    return Awaited(match[1], match[2], float(match[3] or 90))


class RunName(NamedTuple):
    """A run as it was named. It is looked for when all options are known to be right."""

    name: str
    what: str = ""  # it has to be a playbook, a sweep or a drill run


def with_runs(value: object) -> object:
    """Put folders in place of names of runs. Raises RunError."""
    if isinstance(value, list):
        return [with_runs(each) for each in value]
    if not isinstance(value, RunName):
        return value
    from bringup.report import known_runs

    return known_runs.called(value.name, value.what)


def node_called(name: str) -> str:
    """Read the name of a node. Raises UsageError for a run that stands where the node belongs."""
    if "/" in name or re.match(r"\d{8}-\d{6}|last$", name):
        raise UsageError(f"{name}: a run, and the node comes first: bringup ticket NODE RUN")
    return name


def phase_called(name: str) -> Phase:
    """Find a phase by its name. Raises UsageError."""
    if name not in PHASES:
        guess = meant(name, PHASES) or f"; there are {', '.join(PHASES)}"
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
    from bringup.kernel.plan import catalogue

    profile = None if name is None else catalogue.load_profile(name)
    if profile is not None and profile.is_open:
        raise UsageError(f"--profile {name}: each run keeps the numbers that it was opened with; leave --profile out")
    return profile
