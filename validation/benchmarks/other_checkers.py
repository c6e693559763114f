"""The faults of the catalogue, judged by another tool's word, on local clusters that are started and ended for it.

    python validation/benchmarks/other_checkers.py 'mine={checkout}/docs/results/peers/ten-lines' --only tmp-full

A checker is a command that ends with 0 where it sees nothing wrong, and otherwise prints what it sees. It is asked on
each node, or once on the login host: three times without a fault, and once with each fault that lies in the cluster
itself. What it says of the healthy cluster in the first two rounds is its way to speak; what only the third has is a
false alarm. With a fault, it has found it when it says something new: on the node of the fault, where that is a node.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bringup.drill import suite
from bringup.drill.catalogue import DRILLS, Drill
from bringup.drill.environment import LocalCluster
from bringup.kernel.errors import BringupError, CannotStart, DrillError, UsageError
from bringup.kernel.records import write_text
from bringup.kernel.results import REPOSITORY
from bringup.report import terminal
from bringup.report.text import plain, shown_path, table
from bringup.run import open as opening

LIMIT_S = 120
SHOWN = 12  # false alarms on the page; all are counted
MARKS = ("found", "elsewhere", "missed", "no answer")  # elsewhere: only of nodes without the fault
_NUMBERS = re.compile(r"\d+")
Words = dict[tuple[str, str], str]
"""(node or `cluster`, a line that was printed there, without its numbers) -> as it was printed."""


@dataclass
class Checker:
    name: str
    command: str
    once: bool  # on the login host; otherwise on each node
    usual: set[tuple[str, str]] = field(default_factory=set)  # on the cluster of now
    why: str | None = None  # it gave no answer on the healthy cluster: what is new cannot be told
    false_alarms: list[str] = field(default_factory=list)
    healthy: int = 0  # clusters of which it answered without a fault

    def learn(self, cluster: LocalCluster) -> None:
        self.why = None
        try:
            self.usual = {*self._ask(cluster), *self._ask(cluster)}
            self.false_alarms += self._new(cluster).values()
            self.healthy += 1
        except DrillError as error:  # of this checker; the others are asked all the same
            self.why = f"of the healthy cluster: {error}"

    def of_fault(self, cluster: LocalCluster, drill: Drill) -> tuple[str, Sequence[str]]:
        """Return (mark, what it does not say of the healthy cluster)."""
        try:
            if self.why is not None:
                raise DrillError(self.why)
            words = self._new(cluster)
        except DrillError as error:
            return "no answer", [str(error)]
        named = set(re.split(r"--|->|/", drill.subject)) & set(drill.shape.names)
        is_right = self.once or not named or bool(named & {place for place, _ in words})
        return "missed" if not words else "found" if is_right else "elsewhere", list(words.values())

    def _new(self, cluster: LocalCluster) -> Words:
        return {key: line for key, line in self._ask(cluster).items() if key not in self.usual}

    def _ask(self, cluster: LocalCluster) -> Words:
        """What it says. Raises DrillError when it does not end, or a node does not start it."""
        words: Words = {}
        for place in ["cluster"] if self.once else cluster.shape.names:
            where = ("sh",) if self.once else ("on", place)
            command = self.command.replace("{checkout}", str(REPOSITORY))
            done = cluster.verb(*where, "bash", "-c", command, limit_s=LIMIT_S)
            if done.returncode == 0:
                continue
            if cluster.verb(*where, "true").code != 0:
                raise DrillError(f"{place} starts no command")
            output = (done.stdout + done.stderr).replace(str(REPOSITORY), "CHECKOUT")
            lines = [line.strip() for line in output.splitlines() if line.strip()]
            for line in lines or [f"ended with {done.returncode}"]:
                words.setdefault((place, _NUMBERS.sub("#", line)), f"{place}: {line}")
        return words


@dataclass(frozen=True)
class Row:
    drill: Drill
    answers: Mapping[str, tuple[str, Sequence[str]]]  # checker -> (mark, what it said)
    why: str | None = None  # the fault could not be made


def read(texts: Sequence[str], once: Sequence[str]) -> list[Checker]:
    """NAME=COMMAND each. Raises UsageError."""
    checkers = {}
    for text, is_once in [*((text, False) for text in texts), *((text, True) for text in once)]:
        name, equals, command = text.partition("=")
        if not (re.fullmatch(r"[\w.-]+", name) and equals and command.strip()) or name in checkers:
            raise UsageError(f"{text!r} is not NAME=COMMAND, with a name of its own")
        checkers[name] = Checker(name, command, is_once)
    return list(checkers.values())


def run(drills: Sequence[Drill], checkers: Sequence[Checker]) -> int:
    """Exit code: 0 each checker answered on each fault, 2 not. A checker may miss a fault."""
    # in the cluster, not in what a job of ours does, and there before a phase starts
    seen = [each for each in drills if each.inject and not (each.during or each.environment or each.tamper)]
    chosen = suite.in_order(seen)
    if not chosen:
        raise CannotStart("none of these drills has a fault of the cluster itself, which alone other tools can see")
    folder, opened_at, console = suite.DRILLS / opening.default_name(), opening.now(), terminal.console()
    folder.mkdir(parents=True)
    console.print(f"checkers: {len(chosen)} faults, {', '.join(c.name for c in checkers)}; {shown_path(folder)}")
    rows: list[Row] = []
    with suite.local_clusters(folder, "checkers") as clusters:
        for shape in dict.fromkeys(drill.shape for drill in chosen):
            cluster = clusters.of(shape)
            for checker in checkers:
                checker.learn(cluster)
            for drill in (drill for drill in chosen if drill.shape == shape):
                rows.append(row := _row(drill, cluster, checkers))
                marks = ", ".join(f"{name} {mark}" for name, (mark, _) in row.answers.items())
                console.print(plain(f"{drill.id}: {row.why or marks}"))
                write_text(folder / "checkers.md", markdown(rows, checkers, opened_at), replace=True)
    console.print(f"\n{totals(rows, checkers)}\nreport: {shown_path(folder / 'checkers.md')}")
    is_whole = all(row.why is None and all(mark != "no answer" for mark, _ in row.answers.values()) for row in rows)
    return 0 if is_whole else 2


def _row(drill: Drill, cluster: LocalCluster, checkers: Sequence[Checker]) -> Row:
    try:
        cluster.heal()
        cluster.make(drill.inject)
        if drill.wait_for is not None:
            cluster.wait_for(*drill.wait_for)
        return Row(drill, {checker.name: checker.of_fault(cluster, drill) for checker in checkers})
    except DrillError as error:
        return Row(drill, {}, str(error))
    finally:
        for command in drill.undo:
            try:
                cluster.make((command,))
            except DrillError:
                cluster.is_spoiled = True


def totals(rows: Sequence[Row], checkers: Sequence[Checker]) -> str:
    performed = [row for row in rows if row.why is None]
    sentences = []
    for checker in checkers:
        marks = Counter(row.answers[checker.name][0] for row in performed)
        counts = ", ".join(f"{count} {mark}" for mark in MARKS if (count := marks[mark]))
        alarms = f"{len(checker.false_alarms)} false alarms on {checker.healthy} healthy clusters"
        sentences.append(f"{checker.name}: {counts or 'not asked'}, {alarms}")
    return f"{len(performed)} faults. " + "; ".join(sentences) + "."


def markdown(rows: Sequence[Row], checkers: Sequence[Checker], opened_at: str) -> str:
    silent = [row for row in rows if row.answers and all(mark == "missed" for mark, _ in row.answers.values())]
    cells = [
        (row.drill.id, row.drill.fault, row.drill.subject, *(_cell(row, checker.name) for checker in checkers))
        for row in rows
        if row not in silent
    ]
    alarms = [f"{checker.name}: {alarm}" for checker in checkers for alarm in checker.false_alarms]
    return "\n".join(
        [
            "# The same faults, seen by other tools",
            "",
            f"**{totals(rows, checkers)}**",
            "",
            "`validation/benchmarks/other_checkers.py`, "
            f"begun {opened_at}, commit {(opening.git_commit() or 'unknown')[:12]}. Found:",
            "the tool says something that it does not say of the healthy cluster, of the node that has the fault. One",
            "that starts no jobs cannot see what only a job shows. So this is no ranking.",
            "",
            *(f"- {checker.name}: `{checker.command}`" for checker in checkers),
            *(f"- false alarm: {plain(alarm)}" for alarm in alarms[:SHOWN]),
            "",
            *table(("drill", "fault", "where", *(checker.name for checker in checkers)), cells),
            "",
            f"Missed by all of them ([what each is](drills.md)): {', '.join(row.drill.id for row in silent)}.",
            "",
        ]
    )


def _cell(row: Row, name: str) -> str:
    if row.why is not None:
        return f"not performed: {row.why}"[:80]
    mark, output = row.answers[name]
    return mark if mark == "missed" else f"{mark}: {output[0]}"[:140]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkers", nargs="*", metavar="NAME=COMMAND", help="run with bash on each node")
    parser.add_argument("--once", action="append", default=[], metavar="NAME=COMMAND", help="run on the login host")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="these drills")
    arguments = parser.parse_args()
    try:
        chosen = [drill for drill in DRILLS if not arguments.only or drill.id in arguments.only]
        return run(chosen, read(arguments.checkers, arguments.once))
    except BringupError as error:
        print(f"other_checkers: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
