"""`bringup run --dry-run`: what would be submitted, on which nodes, and how long it is expected to take."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence

from bringup.evidence.names import listed
from bringup.plan.phases import PHASES
from bringup.report import text
from bringup.run import at_work
from bringup.run import site as at_site

HEADER = ("step", "nodes", "expected", "command")


def run(
    planned: Sequence[str],
    left_out: Sequence[str],
    kept: Collection[str],
    nodes: Sequence[str],
    site: at_site.AtSite | None,
) -> str:
    """kept: steps of an earlier run that are not repeated."""
    left = [PHASES[stem] for stem in planned if stem not in kept]
    options = [] if site is None else site.site.sbatch
    rows = []
    for phase in left:
        command = ["sbatch", *options, phase.script] if phase.submit else ["bash", phase.script]
        where = listed(nodes[: phase.max_nodes])
        rows.append((phase.stem, where, at_work.expected(phase, nodes), shlex.join(command)))
    least, most = (sum(phase.minutes[end] for phase in left) for end in (0, 1))
    return "\n".join(
        [
            *([text.columns(HEADER, rows), ""] if rows else []),
            *(f"{'KEPT':<10} {PHASES[stem].title}: passed before" for stem in planned if stem in kept),
            *(f"{'NOT ASKED':<10} {reason}" for reason in left_out),
            f"{len(left)} steps, {least} to {most} minutes and the queue. Nothing was submitted.",
        ]
    )
