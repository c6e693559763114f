"""What a drill run showed: a line each, the totals, and the table as Markdown."""

import statistics
from collections.abc import Sequence

from bringup.drill.catalogue import Drill
from bringup.kernel.records import grouped
from bringup.report import text as report
from bringup.report.campaigns import DrillReport, DrillResult
from bringup.report.render import render


def listed(drills: Sequence[Drill]) -> str:
    """List the catalogue, a row each."""
    rows = [(d.id, d.where, d.phase, d.fault, f"{d.gate} [{d.subject}] {d.outcome}") for d in drills]
    return report.columns(("drill", "where", "phase", "fault", "must say"), rows)


def mark(result: DrillResult) -> str:
    """Say in one word what came of it."""
    if not result.performed:
        return "NOT PERFORMED" if result.applicable else "NOT APPLICABLE"
    needs = {"MISSED": result.detected, "WRONG PLACE": result.right_subject, "WRONG CAUSE": result.right_cause}
    needs["FALSE ALARM"] = not result.false_alarms
    return next((word for word, is_so in needs.items() if not is_so), "FOUND")


def line(result: DrillResult) -> str:
    """Write a line for the terminal."""
    text = f"{mark(result):<14} {result.drill}: "
    if not result.performed:
        return text + report.plain(result.why or "")
    text += f"{result.gate} [{result.subject}] {result.outcome}"
    text += f": {report.plain(result.observed)[:100]}" if result.observed else ""
    text += f" ({result.seconds_to_detect:.1f} s)"
    return "\n".join([text, *(f"{'':<14} false alarm: {report.plain(alarm)}" for alarm in result.false_alarms)])


def totals(done: DrillReport) -> str:
    """Write the last line."""
    if not done.planned:
        return ""
    performed = [result for result in done.results if result.performed]
    sentences = [
        f"{sum(bool(r.detected) for r in performed)} of {len(performed)} drills detected",
        f"{sum(bool(r.right_subject) for r in performed)} in the right place",
        f"{sum(bool(r.right_cause) for r in performed)} with the right cause",
        f"{sum(len(r.false_alarms) for r in performed)} false alarms elsewhere",
    ]
    if times := [r.seconds_to_detect for r in performed if r.seconds_to_detect is not None]:
        sentences.append(f"median {statistics.median(times):.0f} s to detect")
    numbers = {
        "not performed": sum(not r.performed and r.applicable for r in done.results),
        "not applicable": sum(not r.applicable for r in done.results),
        "not reached": len(done.planned) - len(done.results),
    }
    return "; ".join([*sentences, *(f"{number} {label}" for label, number in numbers.items() if number)])


def exit_code(done: DrillReport) -> int:
    """Return 0: all found, 1: one was not, or something else was accused, 2: not known."""
    performed = [result for result in done.results if result.performed]
    if any(not result.is_found or result.false_alarms for result in performed):
        return 1
    open_ends = [result for result in done.results if not result.performed and result.applicable]
    return 2 if open_ends or not performed or len(done.results) < len(done.planned) else 0


def markdown(done: DrillReport) -> str:
    matches = [result for result in done.results if mark(result) == "FOUND"]
    by_verdict = grouped((f"{result.gate} [{result.subject}] {result.outcome}", result) for result in matches)
    where = "on a local cluster" if done.place == "local-cluster" else f"on this cluster, profile {done.profile}"
    return render(
        "drill.md.j2",
        done=done,
        heading=f"{where}, begun {done.opened_at}, bringup commit {(done.git_commit or 'unknown')[:12]}",
        totals=totals(done),
        by_verdict=list(by_verdict.items()),
        others=[result for result in done.results if mark(result) != "FOUND"],
        mark=mark,
    )
