"""The fault of one node, made on all nodes: what notices it knows a right value, or a number, and needs no peer.

    python validation/benchmarks/everywhere.py FILE [DRILL ...]          # about half an hour; FILE: the page

Drills that alter one node alter all of them, on local clusters that are started and ended for it. What the campaign
calls a false alarm counts here: whatever does not pass has noticed the fault.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from bringup.drill import suite
from bringup.drill.catalogue import DRILLS, Command, Drill
from bringup.kernel.records import grouped, read_record
from bringup.kernel.results import DRILLS as RECORD
from bringup.report.campaigns import DrillReport, DrillResult
from bringup.report.text import table

OF_A_NODE = ("on", "gpu", "port")  # commands of the local cluster that alter the node behind them
# a drill that lays another /etc over the nodes shows the machine's own machine-id on each
OF_THE_BED = "discovery.node.machine_id"


def everywhere(drills: Sequence[Drill]) -> list[Drill]:
    """Return those that alter one node, each of them altering all."""
    return [altered for drill in drills if (altered := _everywhere(drill)) is not None]


def _everywhere(drill: Drill) -> Drill | None:
    made = (*drill.inject, *drill.during)
    nodes = {command[1] for command in made if command[0] in OF_A_NODE}
    is_of_its_files = all(command[0] in OF_A_NODE for command in made) and drill.wait_for is None
    if len(nodes) != 1 or not is_of_its_files or drill.where != "local-cluster" or drill.needs_expected is not None:
        return None
    (node,) = nodes

    def on_all(commands: tuple[Command, ...]) -> tuple[Command, ...]:
        """Repeat each for every node, whose name takes the place of the one that is altered."""
        return tuple(
            tuple(re.sub(rf"\b{node}\b", name, word) for word in command)
            for command in commands
            for name in (drill.shape.names if command[0] in OF_A_NODE and command[1] == node else (node,))
        )

    changed = {name: on_all(getattr(drill, name)) for name in ("inject", "during", "undo")}
    # whatever does not pass has noticed it
    return drill.model_copy(update=changed | {"silent": tuple(drill.shape.names), "also": (), "consequences": ()})


def noticing(result: DrillResult) -> list[str]:
    """Return the gates that did not pass, first the one that finds it on one node."""
    others = (alarm.partition(" ")[0] for alarm in result.false_alarms)
    gates = ([result.gate] if result.detected else []) + [gate for gate in others if gate != OF_THE_BED]
    return [gate for gate in dict.fromkeys(gates) if "." in gate]  # not `nothing was said about n1`


def page(done: DrillReport) -> str:
    performed = [result for result in done.results if result.performed]
    unnoticed = [result for result in performed if not noticing(result)]
    by_gate = grouped((gates[0], result.drill) for result in performed if (gates := noticing(result)))
    words = f"{len(performed) - len(unnoticed)} of {len(performed)} faults were noticed on all nodes"
    left = len(done.planned) - len(performed)
    lines = [
        "# Faults of one node, made on all nodes",
        "",
        f"Written by `python validation/benchmarks/everywhere.py FILE` on commit {(done.git_commit or '')[:12]}.",
        f"{words}, by a gate that knows a right value or a number; {left} not performed, which says nothing.",
        "The others leave all nodes alike, and every gate that would see them compares nodes.",
        "",
        *table(
            ("unnoticed on all nodes", "found on one node by"), [(f"{r.drill}: {r.fault}", r.gate) for r in unnoticed]
        ),
        "",
        *table(("gate that notices", "faults"), [(gate, ", ".join(ids)) for gate, ids in by_gate.items()]),
    ]
    return "\n".join([*lines, ""])


def main() -> None:
    file, names = Path(sys.argv[1]), sys.argv[2:]
    suite.run(suite.Request([drill for drill in everywhere(DRILLS) if not names or drill.id in names]))
    newest = max(suite.DRILLS.glob(f"*/{RECORD}"), key=lambda path: path.stat().st_mtime)
    file.write_text(page(read_record(newest, DrillReport)))


if __name__ == "__main__":
    main()
