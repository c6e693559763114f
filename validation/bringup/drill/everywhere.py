"""The fault of one node, made on all nodes: what notices it knows a right value, or a number, and needs no peer."""

import re
from collections.abc import Sequence

from bringup.drill.catalogue import Command, Drill
from bringup.kernel.records import grouped
from bringup.report.campaigns import DrillReport, DrillResult
from bringup.report.render import render

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


def line(result: DrillResult) -> str:
    """Write a line for the terminal."""
    if not result.performed:
        return f"{'NOT PERFORMED':<14} {result.drill}: {result.why}"
    gates = noticing(result)
    return f"{'NOTICED' if gates else 'UNNOTICED':<14} {result.drill}: {', '.join(gates[:4]) or 'nothing'}"


def totals(done: DrillReport) -> str:
    performed = [result for result in done.results if result.performed]
    left = len(done.planned) - len(performed)
    words = f"{sum(bool(noticing(result)) for result in performed)} of {len(performed)} faults noticed on all nodes"
    return f"{words}; {left} not performed" if left else words


def markdown(done: DrillReport) -> str:
    performed = [result for result in done.results if result.performed]
    return render(
        "everywhere.md.j2",
        commit=(done.git_commit or "unknown")[:12],
        totals=totals(done),
        unnoticed=[result for result in performed if not noticing(result)],
        by_gate=grouped((gates[0], result.drill) for result in performed if (gates := noticing(result))),
    )
