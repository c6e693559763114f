"""Is the evidence this run's own? It is unchanged since the run was closed, and no probe names another run or time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Closed, Run
from bringup.results import CLOSED, UNREADABLE, checksums

GATE = "run.evidence"
CLOCKS_DIFFER = timedelta(
    minutes=10
)  # between hosts: discovery.clock.offset judges how far; this gate finds another day
SAID_AT_MOST = 3
_STAMP = re.compile(r"(?P<run>.*) (?P<utc>\S+)", re.DOTALL)


def observe(seen: Seen, folder: Path, run: Run, closed: Closed) -> Parsed:
    """One observation: `none`, or what speaks against the evidence. Unknown when the run kept no checksums, or
    when a file cannot be read: that says nothing about the file."""
    found = Parsed()
    changes, unreadable = _compared(folder, closed)
    objections = [*changes, *_stamps(seen, run, closed)]
    found.problems += [*objections, *unreadable]
    if objections:
        found.saw(GATE, "job", _in_short(objections), "text", CLOSED)
    elif unreadable:
        found.saw(GATE, "job", None, "text", CLOSED, _in_short(unreadable))
    elif closed.files is None:
        found.saw(GATE, "job", None, "text", CLOSED, "the run was closed by a version that kept no checksums")
    else:
        found.saw(GATE, "job", "none", "text", CLOSED)
    return found


def _in_short(said: list[str]) -> str:
    more = len(said) - SAID_AT_MOST
    return "; ".join(said[:SAID_AT_MOST]) + (f"; and {more} more" if more > 0 else "")


def _compared(folder: Path, closed: Closed) -> tuple[list[str], list[str]]:
    """What changed since the run was closed, and what cannot be read."""
    if closed.files is None:
        return [], []
    changes: list[str] = []
    unreadable: list[str] = []
    here = checksums(folder)
    for name, then in closed.files.items():
        now = here.get(name)
        if now is None and (why := _hidden(folder / name)) is not None:
            unreadable.append(f"{name} {UNREADABLE}{why}")
        elif now is None:
            changes.append(f"{name} is gone")
        elif now.startswith(UNREADABLE):
            unreadable.append(f"{name} {now}")
        elif then.startswith(UNREADABLE):
            unreadable.append(f"{name} could not be read when the run was closed")
        elif now != then:
            changes.append(f"{name} was changed after the run was closed")
    changes += [f"{name} came after the run was closed" for name in here if name not in closed.files]
    return changes, unreadable


def _hidden(path: Path) -> str | None:
    """Why a file that was not found may be there all the same; None where it is not there."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return str(error.strerror)
    return None


def _stamps(seen: Seen, run: Run, closed: Closed) -> list[str]:
    """What probes wrote into their closing lines: the run's name, and when."""
    begun, ended = moment(run.opened_at), moment(closed.closed_at)
    told = []
    if begun is not None and ended is not None and ended < begun - CLOCKS_DIFFER:
        told.append(f"{CLOSED}: closed at {closed.closed_at}, before the run was opened at {run.opened_at}")
    for stamp in seen.of("probe.stamp"):
        match = _STAMP.fullmatch(str(stamp.value))
        if match is None:
            continue
        if match["run"] and match["run"] != run.name:
            told.append(f"{stamp.evidence}: {stamp.subject} wrote it for run {match['run']}")
        at = moment(match["utc"])
        if at is None or begun is None or ended is None or not begun - CLOCKS_DIFFER <= at <= ended + CLOCKS_DIFFER:
            told.append(
                f"{stamp.evidence}: {stamp.subject} wrote it at {match['utc']}, "
                f"and the run lasted from {run.opened_at} to {closed.closed_at}"
            )
    return told


def moment(text: str) -> datetime | None:
    """Of `2026-01-31T12:00:00Z`."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
