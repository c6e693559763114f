"""How a verb of the command is declared: its help, its arguments with their types, and what does it.

Nothing here loads the rest of the package: it would double the time of each start."""

from __future__ import annotations

import argparse
import math
import os
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from bringup.kernel.characters import meant, plain
from bringup.kernel.errors import UsageError
from bringup.kernel.plan.phases import PHASES, Phase

if TYPE_CHECKING:
    from bringup.kernel.plan.profile import Profile

CANNOT_TELL = 2  # the exit code
N = TypeVar("N", int, float)


def complain(message: str) -> None:
    print(f"bringup: {plain(message)}", file=sys.stderr)


def _checked(read: Callable[[str], N], is_right: Callable[[N], bool], words: str) -> Callable[[str], N]:
    def number(text: str) -> N:
        try:
            if is_right(value := read(text)):
                return value
        except ValueError:
            pass
        raise argparse.ArgumentTypeError(f"{text!r} is not {words}")

    return number


natural = _checked(int, lambda value: value >= 1, "1 or more")
whole = _checked(int, lambda value: value >= 0, "0 or more")
share = _checked(float, lambda value: 0 < value <= 1, "a share: more than 0, at most 1")
positive = _checked(float, lambda value: 0 < value < math.inf, "more than 0")


class RunName(NamedTuple):
    """A run as it was named. It is looked for when all options are known to be right."""

    name: str
    what: str = ""  # it has to be a playbook, a sweep or a drill run


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
    from bringup.kernel.plan import profile as profiles

    profile = None if name is None else profiles.load(name)
    if profile is not None and profile.is_open:
        raise UsageError(f"--profile {name}: each run keeps the numbers that it was opened with; leave --profile out")
    return profile


Argument = tuple[tuple[str, ...], dict[str, Any]]  # of add_argument; a default may be a function


class Verb(NamedTuple):
    help: str
    arguments: tuple[Argument, ...]
    example: str | None = None
    description: str | None = None
    starts_scripts: bool = False  # of a checkout


class Known(NamedTuple):
    verb: Verb
    group: str  # of --help
    does: str  # MODULE:FUNCTION, imported when the verb is called


def verb(help: str, *arguments: Argument, **more: Any) -> Verb:
    return Verb(help, arguments, **more)


def arg(*flags: str, **options: Any) -> Argument:
    return flags, options


def flag(name: str, help: str) -> Argument:
    return (name,), {"action": "store_true", "help": help}


def path(name: str, help: str, metavar: str = "FILE", **more: Any) -> Argument:
    return (name,), {"type": Path, "metavar": metavar, "help": help, **more}


def number(
    name: str, metavar: str, help: str, default: int | None = None, kind: Callable[[str], Any] = natural
) -> Argument:
    shown = help if default is None else f"{help} (default: %(default)s)"
    return (name,), {"type": kind, "metavar": metavar, "default": default, "help": shown}


def several(name: str, metavar: str, help: str) -> Argument:
    return (name,), {"action": "append", "default": [], "metavar": metavar, "help": f"{help}. May be repeated"}


def optional(name: str, metavar: str, help: str) -> Argument:
    return (name,), {"nargs": "?", "const": "", "metavar": metavar, "help": help}


def _named_profile() -> str:
    return os.environ.get("BRINGUP_PROFILE") or "auto"


def profile_argument(what: str) -> Argument:
    return arg("--profile", default=_named_profile, help=f"{what} (default: $BRINGUP_PROFILE, here %(default)s)")


NEWEST = [RunName("last")]  # what stands in arguments.runs where no run was named


def runs(help: str, default: list[RunName] = NEWEST) -> Argument:
    return arg("runs", nargs="*", type=RunName, default=default, metavar="RUN", help=help)


def resume(what: str, help: str) -> Argument:
    return arg("--resume", type=partial(RunName, what=what), metavar="RUN", help=help)


def from_(help: str, **more: Any) -> Argument:
    return arg("--from", type=RunName, metavar="RUN", dest="runs", nargs="+", help=help, **more)


def output(help: str) -> Argument:
    return arg("-o", "--output", type=Path, metavar="FILE", help=help)


NODELIST = arg("--nodelist", help="which nodes: n[0-3]")
FORCE = flag("--force", "also over files that are there")
NAME_OR_PATH = profile_argument("name or .yaml path")
JUDGE_WITH = arg("--profile", help="judge against this profile instead of the one that each run was opened with")
PROFILE = arg("--profile", default=_named_profile)
NODES = arg("--nodes", required=True)
GPUS_PER_NODE = arg("--gpus-per-node", type=natural, required=True)

BEFORE, RUN, READ = "Before a run", "Run something", "Read a run (without RUN: the newest one)"
COMPARE, DAILY, FOR_SCRIPTS = "Compare runs", "Every day", ""
GROUPS = (BEFORE, RUN, READ, COMPARE, DAILY)  # of --help, in its order
