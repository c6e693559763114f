"""What other tools said of the faults of the catalogue: a line each, totals and the page."""

from __future__ import annotations

from collections import Counter

from bringup.records import CheckerReport, CheckerRow
from bringup.report.text import plain, table

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
    rows = [
        (
            row.drill,
            row.fault,
            row.subject,
            *((("found" if row.own else "missed") if row.own is not None else "",) if has_own else ()),
            *(_cell(row, name) for name in done.checkers),
        )
        for row in done.rows
    ]
    head = ("drill", "fault", "where", *(("bringup",) if has_own else ()), *done.checkers)
    return "\n".join(
        [
            "# The same faults, seen by other tools",
            "",
            f"**{totals(done)}**",
            "",
            f"`bringup drill --checker`, begun {done.opened_at}, commit {(done.git_commit or 'unknown')[:12]}. Found:",
            "the tool says something that it does not say of the healthy cluster, of the node that has the fault. One",
            "that starts no jobs cannot see what only a job shows. So this is no ranking.",
            "",
            *(f"- {name}: `{command}`" for name, command in done.checkers.items()),
            *(f"- false alarm: {plain(alarm)}" for alarm in done.false_alarms[:SHOWN]),
            *([f"- {len(left)} more false alarms: checkers.json"] if (left := done.false_alarms[SHOWN:]) else []),
            "",
            *table(head, rows),
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
