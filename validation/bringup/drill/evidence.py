"""What drills found: the claim that faults are noticed, of the cluster that they were made on."""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from bringup.drill.catalogue import DECLARED
from bringup.kernel.answers import NO_FAULT
from bringup.kernel.errors import BringupError
from bringup.kernel.facts.names import listed
from bringup.kernel.judge import Judged, judge_folder
from bringup.kernel.plan import stand_ins
from bringup.kernel.records import Mark, Outcome, Run, read_record
from bringup.kernel.results import DRILLS
from bringup.report.campaigns import DrillReport, DrillResult

DAYS = 90  # that may lie between a drill and the runs beside it: a cluster changes
NAMED = 3  # drills


class Drilled(NamedTuple):
    """What drills found, and the runs in which they found it. runs: drill -> its run, judged again."""

    report: DrillReport
    runs: Mapping[str, Judged]


def drilled(folder: Path) -> Drilled:
    """Load the record of drills, and their runs: each in the folder of its drill, wherever the whole was moved to."""
    report, runs = read_record(folder / DRILLS, DrillReport), dict[str, Judged]()
    for result in report.results:
        if result.performed and result.evidence is not None:
            with contextlib.suppress(BringupError, OSError):  # then nothing shows what it found
                runs[result.drill] = judge_folder(folder / result.drill / Path(result.evidence).name)
    return Drilled(report, runs)


def diagnosable(drills: Sequence[Drilled], runs: Sequence[Run], *, is_real: bool) -> tuple[Mark, str]:
    """Say whether faults are noticed, and why. Trust no record that says `found`: the run that shows it lies beside it,
    and says so again. runs: whose cluster it is about. is_real: hardware was seen at work in one, and what is said of
    it stays said."""
    pairs = [(drilled, result) for drilled in drills for result in drilled.report.results if result.performed]
    results = [result for _, result in pairs]
    passed = [result for result in results if result.is_found and not result.false_alarms]
    unproven = [result.drill for drilled, result in pairs if not _is_shown(drilled, result)]
    counted = f"{len(passed)} of {len(results)} drills found"
    if not results:
        return Mark.NOT_ASKED, NO_FAULT
    if len(passed) < len(results):
        missed = [result.drill for result in results if result not in passed]
        return Mark.FAIL, f"{counted}; not: {', '.join(missed[:NAMED])}"
    if unproven:
        return Mark.INCOMPLETE, f"{counted}; no run beside drill.json shows it: {', '.join(unproven[:NAMED])}"
    if elsewhere := _elsewhere(drills, runs):
        return Mark.NOT_ASKED if is_real else Mark.NOT_PROVEN, f"{counted}; {elsewhere}: bringup drill --anywhere"
    return Mark.PASS, counted


def _is_shown(drilled: Drilled, result: DrillResult) -> bool:
    """Whether a run of these drills, and of no other name, has the verdict that the fault was declared with."""
    run, drill = drilled.runs.get(result.drill), DECLARED.get(result.drill)
    if run is None or run.run.phase != result.phase:
        return False
    name = run.run.name.removeprefix(f"{result.phase}-")  # of a training
    is_own = result.gate in run.own and result.outcome is not Outcome.PASS
    is_declared = is_own if drill is None else (drill.gate, drill.outcome) == (result.gate, result.outcome)
    declared = (result.gate, result.subject, result.outcome)
    judged = {(v.gate, v.subject, v.outcome) for v in run.verdicts.verdicts}
    return is_declared and declared in judged and name.startswith(f"{drilled.report.name}-")


def _elsewhere(drills: Sequence[Drilled], runs: Sequence[Run]) -> str:
    """Why what the drills found says nothing about the cluster of these runs; empty where it does."""
    shown = [run for drilled in drills for run in drilled.runs.values()]
    made = [run.run for run in shown]
    if any(drilled.report.place == "local-cluster" for drilled in drills):
        return "the faults were made on a local cluster"
    if any(stand_ins.are_in(run.observations) for run in shown):
        return "the faults were made on simulated GPUs"
    if not runs:
        return ""
    if {run.of_cluster for run in made} - {run.of_cluster for run in runs}:
        return "the faults were made on another cluster"
    if nodes := {node for run in made for node in run.nodes} - {node for run in runs for node in run.nodes}:
        return f"the faults were made on nodes of no run here ({listed(sorted(nodes))})"
    first, last = min(run.opened_at[:10] for run in made), max(run.opened_at[:10] for run in runs)
    days = abs(date.fromisoformat(first) - date.fromisoformat(last)).days
    return f"the faults were made {days} days from these runs" if days > DAYS else ""
