"""What `dcgmi diag` found on a node, from the results of its tests."""

from __future__ import annotations

from collections import defaultdict

from bringup.evidence.dcgm import DOUBTFUL
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Observation

_TEST = "dcgm.test."
_TOLD = 4  # tests that a verdict names


def derive(seen: Seen) -> Parsed:
    """sweep.dcgm.gpus, sweep.dcgm.failed and sweep.dcgm.doubtful per node. Unknown, with the reason, where there is no
    answer; so is what failed where not one test ran."""
    found = Parsed()
    results: dict[str, list[Observation]] = defaultdict(list)
    for result in seen.under(_TEST):
        results[result.subject.partition("/")[0]].append(result)
    counted = seen.by_subject("dcgm.gpus")
    without = _without_an_answer(seen)
    for node, why in without.items():
        for what in ("gpus", "failed", "doubtful"):
            found.saw(f"sweep.dcgm.{what}", node, None, "count", why.evidence, why.why)
    for node, tests in results.items():
        if node not in without:
            _gpus(found, node, counted.get(node, []), tests)
            _results(found, node, tests)
    return found


def _without_an_answer(seen: Seen) -> dict[str, Observation]:
    missing = [*seen.of("dcgm.ended"), *seen.of("dcgm.answer")]
    return {fact.subject: fact for fact in missing if fact.value is not True}


def _gpus(found: Parsed, node: str, counted: list[Observation], tests: list[Observation]) -> None:
    named = {test.subject for test in tests if test.subject.startswith(f"{node}/gpu")}
    if counted:
        found.saw("sweep.dcgm.gpus", node, counted[0].value, "count", counted[0].evidence)
    elif named:
        found.saw("sweep.dcgm.gpus", node, len(named), "count", tests[0].evidence, "GPUs that a test names")
    else:
        found.saw("sweep.dcgm.gpus", node, None, "count", tests[0].evidence, "the answer of dcgmi names no GPU")


def _results(found: Parsed, node: str, tests: list[Observation]) -> None:
    failed = [test for test in tests if test.value == "fail"]
    doubtful = [test for test in tests if test.value in ("skip", "warn", DOUBTFUL)]
    unknown = next((test for test in tests if test.value is None), None)
    where = tests[0].evidence
    if failed:
        found.saw("sweep.dcgm.failed", node, len(failed), "count", where, _words(failed))
    elif unknown is not None:
        found.saw("sweep.dcgm.failed", node, None, "count", where, f"{_name(unknown)}: {unknown.why}")
    elif all(test.value == "skip" for test in tests):
        found.saw("sweep.dcgm.failed", node, None, "count", where, f"DCGM skipped every test: {_words(tests)}")
    else:
        ran = sum(test.value != "skip" for test in tests)
        found.saw("sweep.dcgm.failed", node, 0, "count", where, f"{ran} results of {len(_kinds(tests))} tests")
    found.saw("sweep.dcgm.doubtful", node, len(doubtful), "count", where, _words(doubtful) if doubtful else None)


def _kinds(tests: list[Observation]) -> set[str]:
    return {test.quantity for test in tests}


def _name(test: Observation) -> str:
    """`gpu3: memory`."""
    device = test.subject.partition("/")[2]
    name = test.quantity.removeprefix(_TEST)
    return f"{device}: {name}" if device else name


def _words(tests: list[Observation]) -> str:
    said = [
        f"{_name(test)} {test.value}" + (f" ({test.why})" if test.why and test.value != "skip" else "")
        for test in tests[:_TOLD]
    ]
    return "; ".join(said) + (f"; and {len(tests) - _TOLD} more" if len(tests) > _TOLD else "")
