"""The answer of `dcgmi diag -j`: every sub-test of every GPU, of DCGM 3 and DCGM 4.

In both versions a category holds tests and a test holds results. DCGM 3 names the document "DCGM GPU Diagnostic"; a
result has a gpu_id, except at the first level, where it is about the whole node. DCGM 4 names it "DCGM Diagnostic"; a
result names its entity, and the summary of each test holds what is about no entity. An error of the diagnostic itself
is "runtime_error".
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from bringup.kernel.facts.parser_result import Parsed

DOCUMENTS = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
DOUBTFUL = "pass with a warning"  # the test passed, and DCGM recorded an error, such as memory that it could not get
STATUSES = ("pass", "fail", "warn", "skip", DOUBTFUL)
_MOST_WORDS = 200  # of what DCGM says of a result


def parse(text: str, where: str, node: str) -> Parsed:
    """Read dcgm.test.NAME of node/gpuN, or of the node if DCGM names no GPU; dcgm.gpus; dcgm.answer, which is unknown
    if the document cannot be used."""
    parsed = Parsed()
    try:
        document, _ = json.JSONDecoder().raw_decode(text, text.index("{"))  # dcgmi may warn before and behind it
        diagnostic = next(document[name] for name in DOCUMENTS if name in document)
        error = diagnostic.get("runtime_error")
        tests, gpus = list(_tests(diagnostic, node)), _gpus(document)
    except (ValueError, TypeError, AttributeError, KeyError, StopIteration, RecursionError, OverflowError) as wrong:
        why = f"not the answer of dcgmi diag -j, or cut off: {type(wrong).__name__}: {str(wrong)[:80]}"
        return parsed.note(f"{where}: {why}").saw("dcgm.answer", node, None, "flag", where, why)
    if error or not tests:
        why = f"dcgmi says: {str(error)[:_MOST_WORDS]}" if error else "the answer of dcgmi holds no test"
        return parsed.saw("dcgm.answer", node, None, "flag", where, why)
    parsed.saw("dcgm.answer", node, True, "flag", where)
    if gpus is not None:
        parsed.saw("dcgm.gpus", node, gpus, "count", where)
    for name, subject, status, words in tests:
        known = status in STATUSES
        remark = words if known else f"DCGM says {status!r}, which this version does not know"
        parsed.saw(f"dcgm.test.{name}", subject, status if known else None, "text", where, remark)
    return parsed


def _tests(diagnostic: dict[str, Any], node: str) -> Iterator[tuple[str, str, str, str | None]]:
    """Yield (test, subject, status, DCGM's remark)."""
    for category in diagnostic.get("test_categories", []):
        for test in category["tests"]:
            if test is None:  # DCGM 3 left holes for tests that it no longer has
                continue
            name = re.sub(r"[^a-z0-9]+", "_", str(test["name"]).lower()).strip("_")
            results = list(test.get("results") or [])
            for result in results:
                for subject in _subjects(result, node):
                    yield name, subject, _status(result), _words(result)
            summary = test.get("test_summary")
            known = {"pass", "skip", *map(_status, results)} if results else ()
            if summary is not None and _status(summary) not in known:  # it failed for a reason that is of no one GPU
                yield name, node, _status(summary), _words(summary)


def _subjects(result: dict[str, Any], node: str) -> list[str]:
    entity = result.get("entity_id")
    if entity is not None:
        kind = str(result.get("entity_group", "GPU")).lower()
        return [f"{node}/{kind}{int(entity)}"]
    gpu = result.get("gpu_id", result.get("gpu_ids"))
    return [node] if gpu is None else [f"{node}/gpu{int(number)}" for number in str(gpu).split(",")]


def _status(result: dict[str, Any]) -> str:
    status = str(result["status"]).lower()
    return DOUBTFUL if status == "pass" and result.get("warnings") else status


def _words(result: dict[str, Any]) -> str | None:
    """Return the result's warnings, or else its info. DCGM 3 also calls the text inside a warning `warnings`."""
    warnings, info = result.get("warnings") or [], result.get("info") or []
    texts = [each.get("warning") or each.get("warnings") if isinstance(each, dict) else each for each in warnings]
    remarks = texts or ([info] if isinstance(info, str) else list(info))
    return " ".join(" ".join(map(str, remarks)).split())[:_MOST_WORDS] or None


def _gpus(document: dict[str, Any]) -> int | None:
    groups = document.get("entity_groups")
    if isinstance(groups, list):
        return sum(len(group["entities"]) for group in groups if group and group.get("entity_group") == "GPU")
    listed = document.get("GPU Device IDs") or document.get("GPU Device Serials")
    return len(listed) if isinstance(listed, list | dict) else None
