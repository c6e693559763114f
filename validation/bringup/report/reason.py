"""The reason that a node is drained with: owner, finding, what helps, date, and who found it. One form for all.

    bringup: discovery.gpu.count 1, expected 2; reboot (2026-11-23T02:00Z, health-check)

The health check on a node writes the same form, from the template in the baseline that it was installed with. It puts
"passes again DATE, was" in front of the finding when nothing is wrong any more. The node stays drained: only
`bringup resume-nodes --apply` resumes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from bringup.records import Action

OWNER = "bringup: "
TEMPLATE = OWNER + "{finding}; {action} ({date}, {by})"
PASSES = OWNER + "passes again {date}, was "
ASKS_FOR_A_LOAD = OWNER + "asks for a load {date}, was "
NOT_ALLOWED = r"[^A-Za-z0-9 ._:/,;()+=-]+"  # each run of such becomes one _
MOST = 200  # characters; sinfo -R shows 20 of them
DATE = "%Y-%m-%dT%H:%MZ"
HOOKS = ("health-check", "prolog", "epilog")  # who finds faults on the node itself; others are names of runs

_FORM = re.compile(
    re.escape(OWNER)
    + r"(?:(?:passes again (?P<passes>\S+)|asks for a load (?P<asks>\S+)), was )?(?P<finding>.*); (?P<action>[a-z]+) "
    + r"\((?P<date>[0-9T:Z-]+), (?P<by>[^()]+)\)(?: \[.*\])?"
)
SLURMS_OWN = ("Prolog error", "Epilog error")  # what slurmctld writes when a prolog or an epilog fails


@dataclass(frozen=True)
class Reason:
    finding: str
    action: str
    date: str
    by: str
    passes_since: str | None = None
    asks_for_a_load: bool = False  # its driver's fault is in its log no more, which does not say that it is gone

    @property
    def gates(self) -> list[str]:
        """Words that look like gates, in order: which of them are some, the catalogue knows."""
        return list(dict.fromkeys(re.findall(r"\b[a-z][a-z0-9_]*(?:\.[a-z0-9_]+)+\b", self.finding)))


def for_the_nodes() -> dict[str, Any]:
    """Fields of the baseline: the health check writes reasons where this module is not."""
    return {
        "owner": OWNER,
        "reason": TEMPLATE,
        "passes": PASSES,
        "asks_for_a_load": ASKS_FOR_A_LOAD,
        "slurms_own": list(SLURMS_OWN),
        "not_allowed": NOT_ALLOWED,
        "most": MOST,
        "date": DATE,
        "actions": [str(action) for action in Action],
    }


def written(finding: str, action: Action, date: str, by: str) -> str:
    """At most MOST characters. What is too long is the finding: owner, action, date and finder stay."""
    tail = TEMPLATE.removeprefix(OWNER).format(finding="", action=action, date=date, by=by)
    whole = OWNER + finding[: max(0, MOST - len(OWNER) - len(tail))].rstrip() + tail
    return re.sub(NOT_ALLOWED, "_", whole)


def read(text: str | None) -> Reason | None:
    """None: nobody drained the node, or not bringup. What `scontrol show node` adds ([root@2026-…]) is left out."""
    match = _FORM.fullmatch((text or "").strip())
    if match is None:
        return None
    return Reason(match["finding"], match["action"], match["date"], match["by"], match["passes"], bool(match["asks"]))
