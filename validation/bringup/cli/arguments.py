"""Arguments that need the rest of the package: a job to wait for, and runs in place of their names."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from bringup.verb import RunName

if TYPE_CHECKING:
    from bringup.run.waiting import Awaited


def awaited(text: str) -> Awaited:
    """Read a job to wait for. An empty job id: it was refused, and nothing is waited for."""
    from bringup.run.waiting import Awaited

    match = re.fullmatch(r"([\w.-]+)=([\d_]*)(?:=(\d+))?", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not FILE=JOBID[=SECONDS]")
    return Awaited(match[1], match[2], float(match[3] or 90))


def with_runs(value: object) -> object:
    """Put folders in place of names of runs. Raises RunError."""
    if isinstance(value, list):
        return [with_runs(each) for each in value]
    if not isinstance(value, RunName):
        return value
    from bringup.report import known_runs

    return known_runs.called(value.name, value.what)
