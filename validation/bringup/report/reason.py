"""The reason that a node is drained with: owner, finding, what helps, date, and who found it. One form for all.

    bringup: discovery.gpu.count 1, expected 2; reboot (2026-11-23T02:00Z, run 20261123-020000-abc)

bringup prints it, and a person drains with it. It is read back to see whether a node passes again that was drained so.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from bringup.records import Action

OWNER = "bringup: "
TEMPLATE = OWNER + "{finding}; {action} ({date}, {by})"
NOT_ALLOWED = r"[^A-Za-z0-9 ._:/,;()+=-]+"  # each run of such becomes one _
MOST = 200  # characters; sinfo -R shows 20 of them

_FORM = re.compile(
    re.escape(OWNER) + r"(?P<finding>.*); (?P<action>[a-z]+) \((?P<date>[0-9T:Z-]+), (?P<by>[^()]+)\)(?: \[.*\])?"
)


@dataclass(frozen=True)
class Reason:
    finding: str
    action: str
    date: str
    by: str

    @property
    def gates(self) -> list[str]:
        """Return words that look like gates, in order: which of them are some, the catalogue knows."""
        return list(dict.fromkeys(re.findall(r"\b[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)+\b", self.finding)))


def written(finding: str, action: Action, date: str, by: str) -> str:
    """Write at most MOST characters. What is too long is the finding: owner, action, date and finder stay."""
    tail = TEMPLATE.removeprefix(OWNER).format(finding="", action=action, date=date, by=by)
    whole = OWNER + finding[: max(0, MOST - len(OWNER) - len(tail))].rstrip() + tail
    return re.sub(NOT_ALLOWED, "_", whole)


def read(text: str | None) -> Reason | None:
    """Read a drain reason, without what `scontrol show node` adds, [root@2026-…]. None: it is not of bringup."""
    match = _FORM.fullmatch((text or "").strip())
    if match is None:
        return None
    return Reason(match["finding"], match["action"], match["date"], match["by"])
