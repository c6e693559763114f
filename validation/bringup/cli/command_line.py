"""What verbs share: types of arguments, and the line on standard error."""

from __future__ import annotations

import argparse
import math
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from bringup.errors import UsageError
from bringup.plan import profile as profiles
from bringup.plan.phases import PHASES, Phase
from bringup.records.base import CONTROL

if TYPE_CHECKING:
    Verbs = argparse._SubParsersAction[Any]

CANNOT_TELL = 2  # the exit code


class Printable:
    """A stream that shows no control character, wherever a text came from. Colours stay, on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        colour = r"(?!\x1b\[[0-9;]{0,20}m)" if stream.isatty() else ""
        self._unprintable = re.compile(rf"(?![\n\t]){colour}[{CONTROL}]")

    def write(self, text: str) -> int:
        return self._stream.write(self._unprintable.sub(" ", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def complain(message: str) -> None:
    from bringup.report.text import plain  # here: most starts say nothing

    print(f"bringup: {plain(message)}", file=sys.stderr)


def natural(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 or more")
    return int(text)


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a share: more than 0, at most 1")
    return value


def most_drained(verb: argparse.ArgumentParser) -> None:
    from bringup.run import brake

    def checked(text: str) -> str:
        try:
            return brake.checked(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    verb.add_argument(
        "--most-drained",
        type=checked,
        default=brake.MOST,
        metavar="N|N%",
        help="nodes of a partition that bringup may keep out of service at once (default: 10%%, at least 1)",
    )


def signers_of_the_site(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--signers",
        type=Path,
        metavar="FILE",
        help="whose signatures count, as ssh-keygen's allowed signers; what none of them signed is exit code 2 "
        "(default: the site's allowed_signers; without any, signatures are not verified)",
    )


def phase_called(name: str) -> Phase:
    """Raises UsageError."""
    if name not in PHASES:
        raise UsageError(f"no phase is called {name!r}; there are {', '.join(PHASES)}")
    return PHASES[name]


def profile_of_the_environment(verb: argparse.ArgumentParser, what: str) -> None:
    default = profiles.from_environment()
    verb.add_argument("--profile", default=default, help=f"{what} (default: $BRINGUP_PROFILE, here %(default)s)")
