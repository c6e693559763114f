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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bringup.drill import suite
from bringup.drill.environment import LocalCluster
from bringup.errors import BringupError, CannotStart, DrillError, UsageError
from bringup.plan.catalogue import DRILLS
from bringup.plan.drill import Drill
from bringup.records import DrillReport, Record, Versioned, read_record, write_record, write_text
from bringup.report import terminal
from bringup.report.text import plain, shown_path, table
from bringup.results import DRILLS as DRILL_REPORT
from bringup.results import REPOSITORY
from bringup.run import open as opening

LIMIT_S = 120
REPORT = "checkers.json"
_NUMBERS = re.compile(r"\d+")
Words = dict[tuple[str, str], str]
"""(node or `cluster`, a line that was printed there, without its numbers) -> as it was printed."""


class CheckerAnswer(Record):
    """What another tool said of one fault."""

    checker: str
    mark: Literal["found", "elsewhere", "missed", "no answer"]  # elsewhere: only of nodes without the fault
    said: list[str]  # that it does not say of the healthy cluster


class CheckerRow(Record):
    drill: str
    fault: str
    subject: str
    answers: list[CheckerAnswer]
    why: str | None = None  # the fault could not be made
    own: bool | None = None  # whether bringup detected it, in the drill run that was named


class CheckerReport(Versioned):
    """`checkers.json`: the faults of the catalogue, judged by other tools."""

    git_commit: str | None
    opened_at: str
    checkers: dict[str, str]  # name -> command
    rows: list[CheckerRow]
    false_alarms: list[str]  # of a healthy cluster, in the third round
    healthy: dict[str, int]  # checker -> clusters of which it answered without a fault


@dataclass(frozen=True)
class Checker:
    name: str
    command: str
    once: bool  # on the login host; otherwise on each node

    def ask(self, cluster: LocalCluster) -> Words:
        """What it says. Raises DrillError when it does not end, or a node does not start it."""
        words: Words = {}
        for place in ["cluster"] if self.once else cluster.shape.names:
            where = ("sh",) if self.once else ("on", place)
            command = self.command.replace("{checkout}", str(REPOSITORY))
            done = cluster.verb(*where, "bash", "-c", command, limit_s=LIMIT_S)
            if done.code == 0:
                continue
            if cluster.verb(*where, "true").code != 0:
                raise DrillError(f"{place} starts no command")
            output = (done.output + done.complained).replace(str(REPOSITORY), "CHECKOUT")
            lines = [line.strip() for line in output.splitlines() if line.strip()]
            for line in lines or [f"ended with {done.code}"]:
                words.setdefault(
                    (place, _NUMBERS.sub("#", line)), f"{place}: {line}".replace(str(REPOSITORY), "CHECKOUT")
                )
        return words


@dataclass
class _Asked:
    """A checker on one cluster."""

    checker: Checker
    usual: set[tuple[str, str]] = field(default_factory=set)
    why: str | None = None  # it gave no answer on the healthy cluster: what is new cannot be told
    false_alarms: list[str] = field(default_factory=list)

    def learn(self, cluster: LocalCluster) -> None:
        try:
            self.usual = {*self.checker.ask(cluster), *self.checker.ask(cluster)}
            self.false_alarms = list(self.new(cluster).values())
        except DrillError as error:  # of this checker; the others are asked all the same
            self.why = f"of the healthy cluster: {error}"

    def new(self, cluster: LocalCluster) -> Words:
        """What it does not say of the healthy cluster. Raises DrillError."""
        return {key: line for key, line in self.checker.ask(cluster).items() if key not in self.usual}

    def of_fault(self, cluster: LocalCluster, drill: Drill) -> CheckerAnswer:
        try:
            if self.why is not None:
                raise DrillError(self.why)
            words = self.new(cluster)
        except DrillError as error:
            return CheckerAnswer(checker=self.checker.name, mark="no answer", said=[str(error)])
        there = places_of(drill)
        is_right = self.checker.once or not there or bool(there & {place for place, _ in words})
        return CheckerAnswer(
            checker=self.checker.name,
            mark="missed" if not words else "found" if is_right else "elsewhere",
            said=list(words.values()),
        )


def read(texts: Sequence[str], once: Sequence[str]) -> list[Checker]:
    """NAME=COMMAND each. Raises UsageError."""
    checkers = []
    for text, is_once in [*((text, False) for text in texts), *((text, True) for text in once)]:
        name, equals, command = text.partition("=")
        if not (re.fullmatch(r"[\w.-]+", name) and equals and command.strip()):
            raise UsageError(f"{text!r} is not NAME=COMMAND")
        checkers.append(Checker(name, command, is_once))
    if len({checker.name for checker in checkers}) < len(checkers):
        raise UsageError("two checkers have one name")
    return checkers


def suitable(drill: Drill) -> bool:
    """The fault is in the cluster, not in what a job of ours does, and it is there before a phase starts."""
    return bool(drill.inject) and not (drill.during or drill.environment or drill.tamper or drill.truncate)


def places_of(drill: Drill) -> set[str]:
    """Nodes that the subject names. None: the fault is of all."""
    words = set(re.split(r"--|->|/", drill.subject))
    return {name for name in drill.shape.names if name in words}


def run(drills: Sequence[Drill], checkers: Sequence[Checker], beside: DrillReport | None) -> int:
    """Exit code: 0 each checker answered on each fault, 2 not. A checker may miss a fault."""
    chosen = suite.in_order([drill for drill in drills if suitable(drill)])
    if not chosen:
        raise CannotStart("none of these drills has a fault of the cluster itself, which alone other tools can see")
    folder, console = suite.DRILLS / opening.default_name(), terminal.console()
    folder.mkdir(parents=True)
    console.print(f"checkers: {len(chosen)} faults, {', '.join(c.name for c in checkers)}; {shown_path(folder)}")
    done = CheckerReport(
        git_commit=opening.git_commit(),
        opened_at=opening.now(),
        checkers={checker.name: checker.command for checker in checkers},
        rows=[],
        false_alarms=[],
        healthy={},
    )
    own = {result.drill: bool(result.performed and result.detected) for result in beside.results} if beside else {}
    with suite.local_clusters(folder, "checkers") as clusters:
        for shape in dict.fromkeys(drill.shape for drill in chosen):
            cluster = clusters.of(shape)
            asked = [_Asked(checker) for checker in checkers]
            for each in asked:
                each.learn(cluster)
            done = done.model_copy(
                update={
                    "healthy": {
                        each.checker.name: done.healthy.get(each.checker.name, 0) + (each.why is None) for each in asked
                    },
                    "false_alarms": [
                        *done.false_alarms,
                        *(f"{each.checker.name}: {line}" for each in asked for line in each.false_alarms),
                    ],
                }
            )
            for row in _rows([drill for drill in chosen if drill.shape == shape], cluster, asked, own):
                console.print(line(row))
                done = done.model_copy(update={"rows": [*done.rows, row]})
                write_record(folder / REPORT, done, replace=True)
                write_text(folder / "checkers.md", markdown(done), replace=True)
    console.print(f"\n{totals(done)}\nreport: {shown_path(folder / 'checkers.md')}")
    return exit_code(done)


def exit_code(done: CheckerReport) -> int:
    """A fault that could not be made, or an answer that did not come: 2."""
    is_whole = all(row.why is None and all(answer.mark != "no answer" for answer in row.answers) for row in done.rows)
    return 0 if is_whole else 2


def _rows(
    drills: Iterable[Drill], cluster: LocalCluster, asked: Sequence[_Asked], own: dict[str, bool]
) -> Iterator[CheckerRow]:
    for drill in drills:
        answers, why = [], None
        try:
            cluster.heal()
            cluster.make(drill.inject)
            if drill.wait_for is not None:
                cluster.wait_for(*drill.wait_for)
            answers = [each.of_fault(cluster, drill) for each in asked]
        except DrillError as error:
            why = str(error)
        for command in drill.undo:
            try:
                cluster.make((command,))
            except DrillError:
                cluster.is_spoiled = True
        yield CheckerRow(
            drill=drill.id, fault=drill.fault, subject=drill.subject, answers=answers, why=why, own=own.get(drill.id)
        )


# --- the page

SHOWN = 12  # false alarms on the page; all are counted
MARKS = ("found", "elsewhere", "missed", "no answer")


def line(row: CheckerRow) -> str:
    if row.why is not None:
        return plain(f"{'NOT PERFORMED':<14} {row.drill}: {row.why}")
    return plain(f"{row.drill}: " + ", ".join(f"{answer.checker} {answer.mark}" for answer in row.answers))


def totals(done: CheckerReport) -> str:
    performed = [row for row in done.rows if row.why is None]
    sentences = []
    for name in done.checkers:
        marks = Counter[str](answer.mark for row in performed for answer in row.answers if answer.checker == name)
        alarms = sum(alarm.startswith(f"{name}: ") for alarm in done.false_alarms)
        counts = ", ".join(f"{count} {mark}" for mark in MARKS if (count := marks[mark]))
        sentences.append(
            f"{name}: {counts or 'not asked'}, {alarms} false alarms on {done.healthy.get(name, 0)} healthy clusters"
        )
    judged = [row for row in performed if row.own is not None]
    if judged:
        sentences.append(f"bringup: {sum(bool(row.own) for row in judged)} of {len(judged)} found")
    return f"{len(performed)} faults. " + "; ".join(sentences) + "."


def markdown(done: CheckerReport) -> str:
    has_own = any(row.own is not None for row in done.rows)
    silent = [row for row in done.rows if row.answers and all(answer.mark == "missed" for answer in row.answers)]
    rows = [
        (
            row.drill,
            row.fault,
            row.subject,
            *((("found" if row.own else "missed") if row.own is not None else "",) if has_own else ()),
            *(_cell(row, name) for name in done.checkers),
        )
        for row in done.rows
        if row not in silent
    ]
    head = ("drill", "fault", "where", *(("bringup",) if has_own else ()), *done.checkers)
    return "\n".join(
        [
            "# The same faults, seen by other tools",
            "",
            f"**{totals(done)}**",
            "",
            "`validation/benchmarks/other_checkers.py`, "
            f"begun {done.opened_at}, commit {(done.git_commit or 'unknown')[:12]}. Found:",
            "the tool says something that it does not say of the healthy cluster, of the node that has the fault. One",
            "that starts no jobs cannot see what only a job shows. So this is no ranking.",
            "",
            *(f"- {name}: `{command}`" for name, command in done.checkers.items()),
            *(f"- false alarm: {plain(alarm)}" for alarm in done.false_alarms[:SHOWN]),
            *([f"- {len(left)} more false alarms: checkers.json"] if (left := done.false_alarms[SHOWN:]) else []),
            "",
            *table(head, rows),
            "",
            f"Missed by all of them ([what each is](drills.md)): {', '.join(row.drill for row in silent)}.",
            "",
        ]
    )


def _cell(row: CheckerRow, name: str) -> str:
    if row.why is not None:
        return f"not performed: {row.why}"[:80]
    answer = next((answer for answer in row.answers if answer.checker == name), None)
    if answer is None:
        return "not asked"
    return answer.mark if answer.mark == "missed" else f"{answer.mark}: {answer.said[0] if answer.said else ''}"[:140]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkers", nargs="*", metavar="NAME=COMMAND", help="run with bash on each node")
    parser.add_argument("--once", action="append", default=[], metavar="NAME=COMMAND", help="run on the login host")
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="these drills")
    parser.add_argument(
        "--beside", type=Path, metavar="FOLDER", help="a drill run: what bringup said of the same faults"
    )
    arguments = parser.parse_args()
    try:
        beside = read_record(arguments.beside / DRILL_REPORT, DrillReport) if arguments.beside else None
        chosen = [drill for drill in DRILLS if not arguments.only or drill.id in arguments.only]
        return run(chosen, read(arguments.checkers, arguments.once), beside)
    except BringupError as error:
        print(f"other_checkers: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
