"""JSON in the Common Test Report Format (ctrf-io/ctrf, schema/ctrf.schema.json, read 2026-11), for CI systems."""

from __future__ import annotations

import json
from collections import Counter
from importlib.metadata import version
from typing import Any

from bringup.judge import Judged
from bringup.records import Outcome, Verdict, time_of
from bringup.report.collection import Collection
from bringup.report.text import plain, sentence

SPECIFICATION = "0.0.0"  # the version that its schema and its reporters name
STATUS = {Outcome.PASS: "passed", Outcome.WARN: "passed", Outcome.INCOMPLETE: "other", Outcome.FAIL: "failed"}
STATES = ("passed", "failed", "pending", "skipped", "other")


def ctrf(collection: Collection) -> str:
    """A test per verdict: `incomplete` is `other`, not applicable is `skipped`. A verdict by itself takes no time."""
    tests = [test for judged in collection.judged for test in _tests(judged)]
    tests += [
        {"name": absent.phase, "status": "other", "duration": 0, "rawStatus": "not run", "message": plain(absent.why)}
        for absent in collection.absent
    ]
    counts = Counter(test["status"] for test in tests)
    opened = [time_of(judged.run.opened_at).timestamp() for judged in collection.judged]
    start_ms = int(1000 * min(opened, default=0))
    duration_ms = int(1000 * sum(seconds or 0 for seconds in collection.seconds.values()))
    report = {
        "reportFormat": "CTRF",
        "specVersion": SPECIFICATION,
        "generatedBy": "bringup",
        "results": {
            "tool": {"name": "bringup", "version": version("bringup")},
            "summary": {
                "tests": len(tests),
                **{state: counts[state] for state in STATES},
                "start": start_ms,
                "stop": start_ms + duration_ms,
            },
            "tests": tests,
        },
    }
    return json.dumps(report, indent=1) + "\n"


def _tests(judged: Judged) -> list[dict[str, Any]]:
    suite = [judged.run.phase, judged.run.name]
    return [_test(suite, verdict) for verdict in judged.verdicts.verdicts] + [
        {
            "name": entry.gate,
            "suite": suite,
            "status": "skipped",
            "duration": 0,
            "rawStatus": "not applicable",
            "message": plain(entry.reason),
        }
        for entry in judged.verdicts.not_applicable
    ]


def _test(suite: list[str], verdict: Verdict) -> dict[str, Any]:
    test = {
        "name": plain(f"{verdict.gate} [{verdict.subject}]"),
        "suite": suite,
        "status": STATUS[verdict.outcome],
        "duration": 0,
        "rawStatus": str(verdict.outcome),
        "extra": {
            "value": plain(verdict.value) if isinstance(verdict.value, str) else verdict.value,
            "unit": verdict.unit,
            "limit": verdict.limit,
            "evidence": plain(verdict.evidence),
        }
        | ({} if verdict.action is None else {"action": verdict.action}),
    }
    return test if verdict.outcome is Outcome.PASS else test | {"message": plain(sentence(verdict))}
