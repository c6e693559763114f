"""Whether the evidence is this run's: unchanged since the run was closed, and no probe names another run or time.

It finds accidents, and changes by who did not make the checksums again. It proves nothing against the folder's owner.
"""

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
)  # between hosts. discovery.clock.offset judges small offsets; this gate finds evidence from another day
SAID_AT_MOST = 3
_STAMP = re.compile(r"(?P<run>.*) (?P<utc>\S+)", re.DOTALL)


def observe(observed: Seen, folder: Path, run: Run, closed: Closed) -> Parsed:
    """One observation: `none`, or the objections to the evidence. Unknown if the run has no checksums, or if a file
    cannot be read."""
    derived = Parsed()
    changes, unreadable = _compared(folder, closed)
    objections = [*changes, *_stamps(observed, run, closed)]
    derived.problems += [*objections, *unreadable]
    if objections:
        derived.saw(GATE, "job", _in_short(objections), "text", CLOSED)
    elif unreadable:
        derived.saw(GATE, "job", None, "text", CLOSED, _in_short(unreadable))
    elif closed.files is None:
        derived.saw(GATE, "job", None, "text", CLOSED, "the run was closed by a version that kept no checksums")
    else:
        derived.saw(GATE, "job", "none", "text", CLOSED)
    return derived


def _in_short(messages: list[str]) -> str:
    more = len(messages) - SAID_AT_MOST
    return "; ".join(messages[:SAID_AT_MOST]) + (f"; and {more} more" if more > 0 else "")


def _compared(folder: Path, closed: Closed) -> tuple[list[str], list[str]]:
    """Files that changed since the run was closed, and files that cannot be read."""
    if closed.files is None:
        return [], []
    changes: list[str] = []
    unreadable: list[str] = []
    present = checksums(folder)
    for name, then in closed.files.items():
        now = present.get(name)
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
    changes += [f"{name} came after the run was closed" for name in present if name not in closed.files]
    return changes, unreadable


def _hidden(path: Path) -> str | None:
    """Why a missing file may exist nevertheless (its folder cannot be read); None: it does not exist."""
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        return str(error.strerror)
    return None


def _stamps(observed: Seen, run: Run, closed: Closed) -> list[str]:
    """Objections from the probes' closing lines, which hold the run's name and the time."""
    begun, ended = moment(run.opened_at), moment(closed.closed_at)
    messages = []
    if begun is not None and ended is not None and ended < begun - CLOCKS_DIFFER:
        messages.append(f"{CLOSED}: closed at {closed.closed_at}, before the run was opened at {run.opened_at}")
    for stamp in observed.of("probe.stamp"):
        match = _STAMP.fullmatch(str(stamp.value))
        if match is None:
            continue
        if match["run"] and match["run"] != run.name:
            messages.append(f"{stamp.evidence}: {stamp.subject} wrote it for run {match['run']}")
        at = moment(match["utc"])
        if at is None or begun is None or ended is None or not begun - CLOCKS_DIFFER <= at <= ended + CLOCKS_DIFFER:
            messages.append(
                f"{stamp.evidence}: {stamp.subject} wrote it at {match['utc']}, "
                f"and the run lasted from {run.opened_at} to {closed.closed_at}"
            )
    return messages


def moment(text: str) -> datetime | None:
    """The time in `2026-01-31T12:00:00Z`; None if it is not a time."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
