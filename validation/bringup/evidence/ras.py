"""What NCCL's RAS service said of a job that hung (probes/ras.py), as text -> a note. No gate judges it: RAS calls
ranks missing that are only busy, and has called a job healthy that hung."""

from __future__ import annotations

import re

from bringup.evidence.parsed import Parsed, lines

_GROUP = re.compile(r"\s*\d+(?:\s+\d+(?:-\d+)?){5}\s+(?P<status>[A-Z]+)\s+(?P<errors>[A-Z,]+)\s*")
_MOST_LINES = 8  # of what it found


def parse(text: str, where: str) -> Parsed:
    parsed = Parsed()
    groups = [f"{group['status']} {group['errors']}" for line in lines(text) if (group := _GROUP.fullmatch(line))]
    if not groups and "Job summary" not in text:
        parsed.problems.append(f"{where}: not an answer of NCCL's RAS service: {text[:40]!r}")
        return parsed
    found = _found(text)
    more = f"; and {len(found) - _MOST_LINES} more lines" if len(found) > _MOST_LINES else ""
    said = "; ".join(found[:_MOST_LINES]) or "it reports no fault, which alone proves nothing"
    parsed.problems.append(f"{where}: NCCL's RAS service: {', '.join(groups) or 'no communicator'}: {said}{more}")
    return parsed


def _found(text: str) -> list[str]:
    """The lines under the headings Errors and Warnings."""
    listed: list[str] = []
    below = False
    before = ""
    for line in lines(text):
        if line and not line.strip("="):  # the line under a heading
            below = before.strip() in ("Errors", "Warnings")
            if listed and listed[-1] == before.strip():
                listed.pop()
        elif below and line.strip():
            listed.append(line.strip()[:120])
        before = line
    return listed
