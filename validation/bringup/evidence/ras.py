"""The answer of NCCL's RAS service about a job that hung (probes/ras.py) -> a note. No gate judges it: RAS reports busy
ranks as missing, and has reported a hanging job as healthy.
"""

from __future__ import annotations

import re

from bringup.evidence import names
from bringup.evidence.parsed import Parsed, lines

_GROUP = re.compile(r"\s*\d+(?:\s+\d+(?:-\d+)?){5}\s+(?P<status>[A-Z]+)\s+(?P<errors>[A-Z,]+)\s*")
_MOST_LINES = 8  # of its answer


def parse(text: str, where: str) -> Parsed:
    """Read the state of the communicators, and the lines under the headings Errors and Warnings."""
    groups = [f"{group['status']} {group['errors']}" for line in lines(text) if (group := _GROUP.fullmatch(line))]
    if not groups and "Job summary" not in text:
        return Parsed(problems=[f"{where}: not an answer of NCCL's RAS service: {text[:40]!r}"])
    summary = names.first_few(_listed(text), _MOST_LINES) or "it reports no fault, which alone proves nothing"
    communicators = ", ".join(groups) or "no communicator"
    return Parsed(problems=[f"{where}: NCCL's RAS service: {communicators}: {summary}"])


def _listed(text: str) -> list[str]:
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
