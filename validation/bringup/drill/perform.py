"""Perform one drill: make the fault, run the phase, undo the fault, and compare the verdicts with what was declared."""

import contextlib
import os
import re
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from bringup.drill import environment as environments
from bringup.drill.catalogue import Command, Drill
from bringup.drill.environment import Ended, Environment, last_word
from bringup.kernel import judge, results
from bringup.kernel.errors import DrillError, RecordError, RunError
from bringup.kernel.facts.parser_result import is_number
from bringup.kernel.plan.phases import PHASES
from bringup.kernel.records import Outcome, Value, Verdict, Verdicts, read_record
from bringup.report import text as report
from bringup.report import view
from bringup.report.campaigns import DrillResult
from bringup.run.launch import newest_attempt

_ONE_AT_A_TIME = threading.Lock()

Pair = tuple[str, str]  # gate, subject

REFERENCE = "run_1gpu"
INJECTED = results.REPOSITORY / "training/injected"
BEGINS_WITHIN_S = 120


def perform(drill: Drill, cluster: Environment, place: Path, *, name: str) -> DrillResult:
    """Perform a drill. Evidence goes to `place`/<drill>, a folder of the run `name`. The fault is always undone."""
    begun = time.monotonic()
    folder = place / drill.id
    run_name = f"{name}-{drill.id}"
    try:
        healthy = _healthy_runs(drill, cluster, place, name)
        before = frozenset[Pair]() if cluster.is_well else _failing_before(drill, cluster, place, name)
        if drill.tamper is not None:
            in_place, done, evidence = _tamper(drill, cluster, healthy, folder)
        else:
            reference = {"BRINGUP_REFERENCE": str(healthy[0])} if healthy else {}
            in_place, done = _run_with_fault(drill, cluster, run_name, reference)
            if (newest := newest_attempt(PHASES[drill.phase], run_name)) is None:
                raise DrillError(f"{drill.phase} left no run called {run_name}")
            evidence = newest
        judged = judge.judge_folder(evidence).verdicts
        written: Verdicts | None = None  # none that can be read
        with contextlib.suppress(RecordError):
            written = read_record(evidence / results.VERDICTS, Verdicts)
        detected_s = time.monotonic() - in_place
    except (DrillError, RunError, RecordError, OSError) as error:
        return not_performed(drill, str(error), seconds=round(time.monotonic() - begun, 1))
    finally:
        environments.keep(run_name, (drill.phase,), folder)
    detected, right_subject, right_cause, observed = compare(drill, judged, written, done.stdout)
    return _result(
        drill,
        performed=True,
        detected=detected,
        right_subject=right_subject,
        right_cause=right_cause,
        observed=observed,
        seconds_to_detect=round(detected_s, 1),
        seconds=round(time.monotonic() - begun, 1),
        false_alarms=false_alarms(drill, judged.verdicts, before),
        evidence=f"{place.name}/{drill.id}/{evidence.name}",
    )


def _run_with_fault(drill: Drill, cluster: Environment, name: str, reference: dict[str, str]) -> tuple[float, Ended]:
    """Return (when the fault was in place, how the phase ended). name: of the run."""
    environment = {**reference, "BRINGUP_RUN_NAME": name, **drill.environment, **_injected(drill)}
    try:
        cluster.make(_named(drill, drill.inject))
        in_place = time.monotonic()
        if drill.wait_for is not None:
            cluster.wait_for(*drill.wait_for)

        def meanwhile() -> None:
            nonlocal in_place
            if drill.during:
                _wait_for_moment(drill, name)
                in_place = time.monotonic()
                cluster.make(_named(drill, drill.during))

        words = ("run", drill.phase, *_chosen(cluster, drill))
        done = cluster.bringup(*words, environment=environment, meanwhile=meanwhile)
        return in_place, done
    finally:
        _undo(drill, cluster)


def _injected(drill: Drill) -> dict[str, str]:
    """Return variables that put a fault inside the ranks of a training: Python loads it before their programs."""
    if not PHASES[drill.phase].is_training or "BRINGUP_DRILL" not in drill.environment:
        return {}
    return {"PYTHONPATH": ":".join(filter(None, (str(INJECTED), os.environ.get("PYTHONPATH"))))}


def _named(drill: Drill, commands: tuple[Command, ...]) -> tuple[Command, ...]:
    return tuple(tuple(word.replace("{phase}", drill.phase) for word in command) for command in commands)


def _undo(drill: Drill, cluster: Environment) -> None:
    """Every command, also when an earlier one fails. Then something stays: the cluster is replaced."""
    for command in drill.undo:
        try:
            cluster.make(_named(drill, (command,)))
        except DrillError:
            cluster.is_spoiled = True


def _wait_for_moment(drill: Drill, run_name: str) -> None:
    """Wait for the file that the drill names: faults are made at a defined moment."""
    deadline = time.monotonic() + BEGINS_WITHIN_S
    while not any(results.is_there(folder, drill.when) for folder in results.attempts(PHASES[drill.phase], run_name)):
        if time.monotonic() > deadline:
            raise DrillError(f"{drill.phase} left no {drill.when} in {BEGINS_WITHIN_S} s")
        environments.pause()


def _healthy_runs(drill: Drill, cluster: Environment, place: Path, name: str) -> list[Path]:
    """Find or make what the drill needs: runs of its phase to tamper with, or a one-GPU run to compare with."""
    if drill.tamper is not None:
        numbers = (1, 2) if "$OTHER" in drill.tamper else (1,)
        return [healthy_run(drill, drill.phase, cluster, place, name, number) for number in numbers]
    if PHASES[drill.phase].is_training and not PHASES[drill.phase].one_gpu:
        return [healthy_run(drill, REFERENCE, cluster, place, name, 1)]
    return []


def healthy_run(drill: Drill, stem: str, cluster: Environment, place: Path, name: str, number: int) -> Path:
    """Make the run when first needed; all drills of one shape share it."""
    run_name = f"{name}-healthy-{drill.shape.nodes}-{number}"
    folder = place / "healthy" / f"{stem}-{drill.shape.nodes}-{number}" / results.folder_of(PHASES[stem], run_name).name
    with _ONE_AT_A_TIME:
        if not (folder / results.CLOSED).exists():
            environment = {"BRINGUP_RUN_NAME": run_name}
            try:
                done = cluster.bringup("run", stem, *_chosen(cluster, drill), environment=environment)
            finally:
                environments.keep(run_name, (stem,), folder.parent)
            if not (folder / results.CLOSED).exists():
                raise DrillError(f"no healthy {stem} to begin with: {last_word(done)}")
    bad = [_in_words(v) for v in judge.judge_folder(folder).verdicts.verdicts if not v.outcome.is_quiet]
    if bad and cluster.is_well:
        raise DrillError(f"no healthy {stem} to begin with: {bad[0]}")
    return folder


def _failing_before(drill: Drill, cluster: Environment, place: Path, name: str) -> frozenset[Pair]:
    """Find what fails before: a cluster may have its own faults. DrillError: the drill's verdict is one."""
    verdicts = judge.judge_folder(healthy_run(drill, drill.phase, cluster, place, name, 1)).verdicts.verdicts
    for verdict in verdicts:
        if (verdict.gate, verdict.subject, verdict.outcome) == (drill.gate, drill.subject, drill.outcome):
            raise DrillError(f"here it is so without the fault: {_in_words(verdict)}")
    return frozenset((verdict.gate, verdict.subject) for verdict in verdicts if not verdict.outcome.is_quiet)


def _chosen(cluster: Environment, drill: Drill) -> tuple[str, ...]:
    nodes = cluster.names[: drill.shape.nodes]
    return ("--nodelist", ",".join(nodes)) if nodes else ()


def _tamper(drill: Drill, cluster: Environment, healthy: Sequence[Path], place: Path) -> tuple[float, Ended, Path]:
    """On a copy; then it is judged again."""
    copy = place / healthy[0].name
    if copy.exists():
        shutil.rmtree(copy)
    shutil.copytree(healthy[0], copy)
    done = environments.execute(
        ["bash", "-c", f"set -euo pipefail; {drill.tamper}"],
        folder=copy,
        limit_s=60,
        environment={"OTHER": str(healthy[-1]), "PYTHON": sys.executable},
    )
    if done.returncode != 0:
        raise DrillError(f"tampering ended with {done.returncode}: {last_word(done)}")
    return time.monotonic(), cluster.bringup("judge", str(copy), environment={}), copy


def compare(
    drill: Drill, judged: Verdicts, written: Verdicts | None = None, screen: str = ""
) -> tuple[bool, bool, bool, str | None]:
    """Return (detected, right subject, right cause, what the verdict says). written: the verdicts that the run left.

    A cause stands in a verdict, or is a sign found in a log.
    """
    if drill.outcome is Outcome.PASS:
        return _survived(drill, judged.verdicts, screen)
    hits = {v.subject: v for v in judged.verdicts if v.gate == drill.gate and v.outcome is drill.outcome}
    # or left to the report: if a drill skips most parts of a phase, incomplete verdicts fill the screen
    groups, left = view.on_screen(written.verdicts if written else [])
    shown = {(v.gate, v.subject, v.outcome) for group in (*groups, left) for v in group}
    detected = any((hit.gate, hit.subject, hit.outcome) in shown for hit in hits.values())
    declared = [(drill.gate, drill.subject), *drill.also]
    outcomes = {(v.gate, v.subject): v.outcome for v in judged.verdicts}
    expected = {subject for gate, subject in declared if gate == drill.gate}
    if (verdict_hit := hits.get(drill.subject)) is None:
        return detected, False, False, None
    right_subject = all(outcomes.get(pair) is drill.outcome for pair in declared) and all(
        subject in expected or _is_consequence(drill, drill.gate, subject) for subject in hits
    )
    # a victim of the same fault may also be named, but not instead of the culprit
    is_said = _is_said(drill.says, f"{verdict_hit.observed} {verdict_hit.cause or ''}")
    is_sign = drill.says in [sign.signature for sign in judged.signs]
    right_cause = _has_size(drill, verdict_hit.value) and (is_said or is_sign)
    return detected, right_subject, right_cause, report.sentence(verdict_hit)


def _has_size(drill: Drill, value: Value | None) -> bool:
    """Whether the verdict has the fault's size: the declared value, and a number in the declared range."""
    is_other = value != drill.value or isinstance(value, bool) is not isinstance(drill.value, bool)
    if drill.value is not None and is_other:
        return False
    return drill.between is None or (is_number(value) and drill.between[0] <= value <= drill.between[1])


def _is_said(words: str, text: str) -> bool:
    """Whole words. … ends words that may go on. No words: the value alone is declared."""
    if not words:
        return True
    end = "" if words.endswith("…") else r"(?!\w)"
    return re.search(rf"(?<!\w){re.escape(words.removesuffix('…'))}{end}", text) is not None


def _survived(drill: Drill, verdicts: Sequence[Verdict], screen: str) -> tuple[bool, bool, bool, str | None]:
    """Look for a fault that nothing fails of: it is said, or seen in the value. The declared verdict passes."""
    declared = (drill.gate, drill.subject, Outcome.PASS)
    passed = next((v for v in verdicts if (v.gate, v.subject, v.outcome) == declared), None)
    is_sized = passed is not None and _has_size(drill, passed.value)  # the fault was there
    if not drill.says:
        return is_sized, passed is not None, is_sized, None if passed is None else passed.observed
    line = next((line for line in screen.splitlines() if drill.says in line), None)
    return line is not None, is_sized, line is not None, line


def false_alarms(drill: Drill, verdicts: Sequence[Verdict], before: frozenset[Pair] = frozenset()) -> list[str]:
    """Return verdicts that accuse what this fault does not concern, and subjects that should have passed and did not.

    before: what did not pass without the fault either.
    """
    declared, judged = {(drill.gate, drill.subject), *drill.also}, {v.subject for v in verdicts}
    new = [v for v in verdicts if (v.gate, v.subject) not in before and not _is_consequence(drill, v.gate, v.subject)]
    bad = [v for v in new if v.outcome in (Outcome.FAIL, Outcome.WARN) and (v.gate, v.subject) not in declared]
    unsaid = [f"nothing was said about {subject}" for subject in drill.silent if subject not in judged]
    unknown = [v for v in new if v.outcome is Outcome.INCOMPLETE and v.subject in drill.silent]
    return [*map(_in_words, bad), *unsaid, *map(_in_words, unknown)]


def _is_consequence(drill: Drill, gate: str, subject: str) -> bool:
    return any(fnmatchcase(gate, gates) and fnmatchcase(subject, subjects) for gates, subjects in drill.consequences)


def _in_words(verdict: Verdict) -> str:
    return f"{verdict.gate} [{verdict.subject}] {verdict.outcome}: {verdict.observed}"[:200]


def not_performed(drill: Drill, why: str, *, applicable: bool = True, seconds: float = 0) -> DrillResult:
    return _result(drill, performed=False, applicable=applicable, why=report.plain(why), seconds=seconds)


def _result(drill: Drill, **became: Any) -> DrillResult:
    declared = {name: getattr(drill, name) for name in ("fault", "phase", "gate", "subject", "outcome")}
    return DrillResult(drill=drill.id, **declared, **became)
