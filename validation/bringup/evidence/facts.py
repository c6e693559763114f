"""The fact lines that probes print (probes/facts.py), with or without srun's label in front."""

from __future__ import annotations

import math
import re
from typing import Any

from pydantic_core import from_json

from bringup.evidence.parsed import Parsed, lines

_LABEL = re.compile(r"^\s*(\d+): ")
_FACT = {"probe", "at", "subject", "quantity", "value", "unit"}
_EXPLAINED = {*_FACT, "why"}
_CLOSING = {"probe", "at", "end"}
_STAMPED = {*_CLOSING, "run", "utc"}


Source = tuple[str, str, str]  # label of srun, node, probe


def parse(text: str, where: str) -> Parsed:
    """Facts of any number of tasks in one file.

    A task without a matching closing line is a problem: it has not finished.
    """
    parsed = Parsed()
    counted: dict[Source, int] = {}
    closings: dict[Source, list[tuple[int, str]]] = {}  # the count that each closing line gives, and where it stands
    sources: list[Source] = []  # of each fact, and
    places: list[int] = []  # where its observation is
    for number, raw in enumerate(lines(text), start=1):
        evidence = f"{where}:{number}"
        label = _LABEL.match(raw)
        line = raw[label.end() :] if label else raw
        if not line.strip():
            continue
        record = _record(line)
        if record is None:
            parsed.problems.append(f"{evidence}: not a fact: {line[:60]!r}")
            continue
        source = (label[1] if label else "", record["at"], record["probe"])
        if "end" in record:
            closings.setdefault(source, []).append((record["end"], evidence))
            if "utc" in record:
                parsed.saw("probe.stamp", record["at"], f"{record['run']} {record['utc']}", "text", evidence)
            continue
        counted[source] = counted.get(source, 0) + 1
        sources.append(source)
        places.append(len(parsed.observations))
        parsed.saw(record["quantity"], record["subject"], record["value"], record["unit"], evidence, record.get("why"))
    finished = set()
    for source, ends in closings.items():
        _, at, probe = source
        if len(ends) == 1 and ends[0][0] == counted.get(source, 0):
            finished.add(source)
            parsed.saw(f"probe.{probe}.finished", at, True, "flag", ends[0][1])
        else:  # cut off, or there twice
            told = " and ".join(str(end) for end, _ in ends)
            parsed.problems.append(
                f"{ends[-1][1]}: {probe} on {at} wrote {told} facts, {counted.get(source, 0)} arrived"
            )
            parsed.saw(
                f"probe.{probe}.finished",
                at,
                None,
                "flag",
                ends[-1][1],
                f"{probe} says that it wrote {told} facts, and {counted.get(source, 0)} are there",
            )
    unfinished = [source for source in counted if source not in finished]
    for index, source in enumerate(sources):
        if source not in finished:  # what it had said is kept as a remark: half a report is not evidence of health
            one = parsed.observations[places[index]]
            parsed.observations[places[index]] = one.model_copy(
                update={"value": None, "why": f"{source[2]} did not finish; it had said {one.value}"}
            )
    parsed.problems += [
        f"{where}: {probe} on {at} did not finish: {counted[label, at, probe]} facts and no closing line"
        for label, at, probe in unfinished
    ]
    if not counted and not parsed.problems:
        parsed.problems.append(f"{where}: holds no fact")
    return parsed


def _record(line: str) -> dict[str, Any] | None:
    """The fact or closing line; None when it is neither. It is read once per fact of a fleet: no more than it needs."""
    try:
        record = from_json(line, allow_inf_nan=False)
    except (ValueError, TypeError):  # TypeError: half of a surrogate pair, which cannot be written down
        return None
    if type(record) is not dict:
        return None
    if "end" in record:
        known = record.keys() in (_CLOSING, _STAMPED) and type(record["end"]) is int
        texts = [text for key, text in record.items() if key != "end"]
    else:
        known = record.keys() in (_FACT, _EXPLAINED)
        texts = [text for key, text in record.items() if key != "value"]
    if not known or not all(type(text) is str for text in texts):
        return None
    if "end" in record:
        return record
    if record["value"] is None and not record.get("why"):
        return None
    return record if _is_value(record["value"]) else None


def _is_value(value: object) -> bool:
    if isinstance(value, list):
        return all(isinstance(item, str) for item in value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) < 2**63  # no counter holds more, and no comparison can overflow
    return value is None or isinstance(value, str)
