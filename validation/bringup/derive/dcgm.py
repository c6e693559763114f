"""Results of `dcgmi diag` per node."""

from __future__ import annotations

from bringup.derive.fold import by_node, shortened
from bringup.evidence.dcgm import DOUBTFUL
from bringup.evidence.parsed import Parsed, Seen
from bringup.records import Observation, Run

_TEST = "dcgm.test."


def results(derived: Parsed, observed: Seen, run: Run) -> None:
    """sweep.dcgm.gpus, sweep.dcgm.failed and sweep.dcgm.doubtful per node. Unknown, with the reason, if there is no
    answer; `failed` is also unknown if no test ran."""
    counted = observed.by_subject("dcgm.gpus")
    without = _without_an_answer(observed)
    for node, why in without.items():
        for quantity in ("gpus", "failed", "doubtful"):
            derived.saw(f"sweep.dcgm.{quantity}", node, None, "count", why.evidence, why.why)
    for node, tests in by_node(observed.under(_TEST)).items():
        if node not in without:
            _gpus(derived, node, counted.get(node, []), tests)
            _results(derived, node, tests)


def _without_an_answer(observed: Seen) -> dict[str, Observation]:
    missing = [*observed.of("dcgm.ended"), *observed.of("dcgm.answer")]
    return {fact.subject: fact for fact in missing if fact.value is not True}


def _gpus(derived: Parsed, node: str, counted: list[Observation], tests: list[Observation]) -> None:
    named = {test.subject for test in tests if test.subject.startswith(f"{node}/gpu")}
    if counted:
        derived.saw("sweep.dcgm.gpus", node, counted[0].value, "count", counted[0].evidence)
    elif named:
        derived.saw("sweep.dcgm.gpus", node, len(named), "count", tests[0].evidence, "GPUs that a test names")
    else:
        derived.saw("sweep.dcgm.gpus", node, None, "count", tests[0].evidence, "the answer of dcgmi names no GPU")


def _results(derived: Parsed, node: str, tests: list[Observation]) -> None:
    failed = [test for test in tests if test.value == "fail"]
    doubtful = [test for test in tests if test.value in ("skip", "warn", DOUBTFUL)]
    unknown = next((test for test in tests if test.value is None), None)
    where = tests[0].evidence
    if failed:
        derived.saw("sweep.dcgm.failed", node, len(failed), "count", where, _words(failed))
    elif unknown is not None:
        derived.saw("sweep.dcgm.failed", node, None, "count", where, f"{_name(unknown)}: {unknown.why}")
    elif all(test.value == "skip" for test in tests):
        derived.saw("sweep.dcgm.failed", node, None, "count", where, f"DCGM skipped every test: {_words(tests)}")
    else:
        ran = sum(test.value != "skip" for test in tests)
        derived.saw("sweep.dcgm.failed", node, 0, "count", where, f"{ran} results of {len(_kinds(tests))} tests")
    derived.saw("sweep.dcgm.doubtful", node, len(doubtful), "count", where, _words(doubtful) if doubtful else None)


def _kinds(tests: list[Observation]) -> set[str]:
    return {test.quantity for test in tests}


def _name(test: Observation) -> str:
    """`gpu3: memory`."""
    device = test.subject.partition("/")[2]
    name = test.quantity.removeprefix(_TEST)
    return f"{device}: {name}" if device else name


def _words(tests: list[Observation]) -> str:
    return shortened(
        [
            f"{_name(test)} {test.value}" + (f" ({test.why})" if test.why and test.value != "skip" else "")
            for test in tests
        ]
    )
