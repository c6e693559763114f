"""The answer of NCCL's RAS service about a job that hung (probes/ras.py), as JSON or text -> a note. No gate judges it:
RAS reports busy ranks as missing, and has reported a hanging job as healthy."""

from __future__ import annotations

import re

from bringup.evidence import ras_json
from bringup.evidence.parsed import Parsed, lines

_GROUP = re.compile(r"\s*\d+(?:\s+\d+(?:-\d+)?){5}\s+(?P<status>[A-Z]+)\s+(?P<errors>[A-Z,]+)\s*")
_MOST_LINES = 8  # of its answer


def parse(text: str, where: str) -> Parsed:
    parsed = Parsed()
    try:
        communicators, faults = _of_json(text) if text.startswith("{") else _of_text(text)
    except ValueError:
        parsed.problems.append(f"{where}: not an answer of NCCL's RAS service: {text[:40]!r}")
        return parsed
    more = f"; and {len(faults) - _MOST_LINES} more lines" if len(faults) > _MOST_LINES else ""
    summary = "; ".join(faults[:_MOST_LINES]) or "it reports no fault, which alone proves nothing"
    parsed.problems.append(f"{where}: NCCL's RAS service: {communicators}: {summary}{more}")
    return parsed


def _of_json(text: str) -> tuple[str, list[str]]:
    count, faults = ras_json.faults(text)
    return f"{count} communicator(s)", faults


def _of_text(text: str) -> tuple[str, list[str]]:
    """(state of the communicators, faults). Raises ValueError where it is not such a text."""
    groups = [f"{group['status']} {group['errors']}" for line in lines(text) if (group := _GROUP.fullmatch(line))]
    if not groups and "Job summary" not in text:
        raise ValueError("no job summary")
    return ", ".join(groups) or "no communicator", _listed(text)


def _listed(text: str) -> list[str]:
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
