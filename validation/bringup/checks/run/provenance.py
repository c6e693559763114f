"""Is the evidence this run's own? What was there when it was closed is there unchanged, and no probe names another run or time."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bringup.evidence.parsed import Parsed
from bringup.records import Closed, Run
from bringup.results import CLOSED, checksums

QUANTITY = "run.evidence.objection"
CLOCKS_DIFFER = timedelta(minutes=10)  # between hosts: how far is another gate's affair; this one finds another day
SAID_AT_MOST = 3
_STAMP = re.compile(r"(?P<run>.*) (?P<utc>\S+)", re.DOTALL)


def derive(parsed: Parsed, folder: Path, run: Run, closed: Closed) -> None:
    """One observation: `none`, or what speaks against the evidence. Unknown when the run kept no checksums."""
    objections = [*_changes(folder, closed), *_stamps(parsed, run, closed)]
    if objections:
        more = len(objections) - SAID_AT_MOST
        text = "; ".join(objections[:SAID_AT_MOST]) + (f"; and {more} more" if more > 0 else "")
        parsed.saw(QUANTITY, "job", text, "text", CLOSED)
        parsed.problems += objections
    elif closed.files is None:
        parsed.saw(QUANTITY, "job", None, "text", CLOSED, "the run was closed by a version that kept no checksums")
    else:
        parsed.saw(QUANTITY, "job", "none", "text", CLOSED)


def _changes(folder: Path, closed: Closed) -> list[str]:
    if closed.files is None:
        return []
    here = checksums(folder)
    told = [f"{name} is gone" for name in closed.files if name not in here]
    told += [
        f"{name} was changed after the run was closed"
        for name, digest in closed.files.items()
        if here.get(name, digest) != digest
    ]
    return told + [f"{name} came after the run was closed" for name in here if name not in closed.files]


def _stamps(parsed: Parsed, run: Run, closed: Closed) -> list[str]:
    """What probes wrote into their closing lines: the run's name, and when."""
    begun, ended = moment(run.opened_at), moment(closed.closed_at)
    told = []
    if begun is not None and ended is not None and ended < begun - CLOCKS_DIFFER:
        told.append(f"{CLOSED}: closed at {closed.closed_at}, before the run was opened at {run.opened_at}")
    for one in parsed.observations:
        match = _STAMP.fullmatch(str(one.value)) if one.quantity == "probe.stamp" else None
        if match is None:
            continue
        if match["run"] and match["run"] != run.name:
            told.append(f"{one.evidence}: {one.subject} wrote it for run {match['run']}")
        at = moment(match["utc"])
        if at is None or begun is None or ended is None or not begun - CLOCKS_DIFFER <= at <= ended + CLOCKS_DIFFER:
            told.append(
                f"{one.evidence}: {one.subject} wrote it at {match['utc']}, and the run lasted from {run.opened_at} to "
                f"{closed.closed_at}"
            )
    return told


def moment(text: str) -> datetime | None:
    """Of `2026-01-31T12:00:00Z`."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
