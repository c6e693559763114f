"""Each fault of one node, made on all nodes: which gates notice it without a healthy peer? docs/results/everywhere.md.

    python validation/benchmarks/everywhere.py                             # all such drills of the catalogue; an hour
    python validation/benchmarks/everywhere.py --only pcie-drift gpu-hot

What is alike on all nodes passes every comparison. What notices it all the same knows a right value, or a number.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bringup.drill import environment as environments
from bringup.drill import perform, suite
from bringup.drill.declared import DECLARED, Command, Drill
from bringup.kernel import judge
from bringup.kernel.errors import DrillError
from bringup.kernel.records import Verdict, grouped
from bringup.report import terminal
from bringup.report import text as report
from bringup.run import open as opening

INTO = Path(__file__).resolve().parents[2] / "docs/results/everywhere.md"
# a drill that lays another /etc over the nodes shows the machine's own machine-id on each
OF_THE_BED = "discovery.node.machine_id"
OF_A_NODE = ("on", "gpu", "port")  # commands of the local cluster that alter the node behind them
PAGE = """\
# Faults of one node, made on all nodes

Written by `validation/benchmarks/everywhere.py` on bringup commit {commit}. {noticed} of {count} faults were noticed,
by a gate that knows a right value or a number. The others leave all nodes alike, and every gate that would see them
compares nodes. {left} more cannot be made everywhere: nothing runs then.

| unnoticed on all nodes | found on one node by |
| --- | --- |
{unnoticed}

| gate that notices | faults |
| --- | --- |
{by_gate}
"""


@dataclass(frozen=True)
class Noticed:
    drill: Drill
    gates: dict[str, list[Verdict]]  # that did not pass
    why_not: str | None = None  # it could not be made


def everywhere(drill: Drill) -> Drill | None:
    """Return the same fault on each node. None: it is not of one node alone, or of more than its files and devices."""
    made = (*drill.inject, *drill.during)
    altered = {command[1] for command in made if command[0] in OF_A_NODE}
    if not made or len(altered) != 1 or any(command[0] not in OF_A_NODE for command in made):
        return None
    if drill.wait_for is not None or drill.tamper is not None or drill.where != "local-cluster":
        return None

    (node,) = altered

    def on_all(commands: tuple[Command, ...]) -> tuple[Command, ...]:
        """Its own name, in a command, is the node's of which the command is."""
        return tuple(
            tuple(re.sub(rf"\b{node}\b", name, word) for word in command)
            for command in commands
            for name in (drill.shape.names if command[0] in OF_A_NODE and command[1] == node else (node,))
        )

    changed = {"inject": on_all(drill.inject), "during": on_all(drill.during), "undo": on_all(drill.undo)}
    return drill.model_copy(update=changed)


def of_catalogue(only: Sequence[str]) -> list[Drill]:
    known = [altered for drill in DECLARED.values() if (altered := everywhere(drill)) is not None]
    chosen = [drill for drill in known if not only or drill.id in only]
    return suite.in_order([drill for drill in chosen if drill.needs_expected is None])


def noticed_by(drill: Drill, place: Path, evidence: str | None, why: str | None) -> Noticed:
    if evidence is None:
        return Noticed(drill, {}, why or "it left no run")
    verdicts = judge.judge_folder(place.parent / evidence).verdicts.verdicts
    bad = [verdict for verdict in verdicts if not verdict.outcome.is_quiet]
    return Noticed(
        drill, grouped((each.gate, each) for each in bad if each.gate == drill.gate or each.gate != OF_THE_BED)
    )


def run(only: Sequence[str]) -> int:
    """Exit code: 0, or 2 where a fault could not be made."""
    name, console = opening.default_name(), terminal.console()
    place = environments.RESULTS / "drill" / name
    place.mkdir(parents=True)
    done: list[Noticed] = []
    with suite.local_clusters(place, "everywhere") as clusters:
        for drill in of_catalogue(only):
            try:
                cluster = clusters.of(drill.shape)
                performed = perform.perform(drill, cluster, place, name=name)
                cluster.heal()
                done.append(noticed_by(drill, place, performed.evidence, performed.why))
            except DrillError as error:
                done.append(Noticed(drill, {}, str(error)))
            console.print(
                f"{'NOTICED' if done[-1].gates else 'UNNOTICED':<10} {drill.id}: {report.plain(_gates(done[-1]))}"
            )
            if not only:
                INTO.write_text(page(done), encoding="utf-8")
    return 2 if any(each.why_not for each in done) else 0


def page(done: Sequence[Noticed]) -> str:
    made = [each for each in done if each.why_not is None]
    unnoticed = [each for each in made if not each.gates]
    by_gate = grouped((_usual(each), each.drill.id) for each in made if each.gates)
    return PAGE.format(
        commit=(opening.git_commit() or "unknown")[:12],
        noticed=len(made) - len(unnoticed),
        count=len(made),
        left=len(done) - len(made),
        unnoticed="\n".join(f"| {each.drill.id}: {each.drill.fault} | {each.drill.gate} |" for each in unnoticed),
        by_gate="\n".join(f"| {gate} | {', '.join(ids)} |" for gate, ids in by_gate.items()),
    )


def _usual(each: Noticed) -> str:
    """Return the gate that finds it on one node, if it does so here; else the first that noticed it."""
    return each.drill.gate if each.drill.gate in each.gates else next(iter(each.gates))


def _gates(each: Noticed) -> str:
    if each.why_not is not None:
        return f"not made: {each.why_not}"
    words = [f"{gate} {verdicts[0].outcome} on {len(verdicts)}" for gate, verdicts in list(each.gates.items())[:3]]
    left = len(each.gates) - len(words)
    return ", ".join([*words, *([f"and {left} more"] if left else [])]) or "nothing"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="these drills; the page is not written")
    sys.exit(run(parser.parse_args().only))
