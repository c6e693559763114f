"""The fact lines that probes print (probes/facts.py), with or without srun's label in front."""

import math
import re
from typing import Any

from pydantic_core import from_json

from bringup.kernel.facts.parser_result import Parsed, each_line
from bringup.kernel.facts.speakers import LABEL, Refusals, Speakers

_FACT = {"probe", "at", "subject", "quantity", "value", "unit"}
_EXPLAINED = {*_FACT, "why"}
_CLOSING = {"probe", "at", "end"}
_STAMPED = {*_CLOSING, "run", "utc"}
MOST_NAMED, MOST_OTHERS = 20, 100_000  # lines of a file that are no facts: named one by one, read at all
_LONGEST = 4000  # characters of a line: a probe writes 1,000 at most
UNFINISHED = "did not finish"  # what a probe said before it ended: no evidence, and Slurm may say why it ended
_MOST = 2**63  # no counter holds more, and no comparison can overflow


_CLOSINGS = re.compile(r'^ {0,9}(\d{1,9}): \{"probe": "[^"\n]{1,64}", "at": "([^"\n]{1,255})", "end": ', re.MULTILINE)

Source = tuple[str, str, str]  # label of srun, node, probe


def parse(text: str, where: str, speakers: Speakers | None = None) -> Parsed:
    """Read facts of any number of tasks in one file. speakers: who may say what; None: what stands there is believed.

    A task without a matching closing line is a problem: it has not finished.
    """
    parsed, refusals, others = Parsed(), Refusals(where), 0
    facts: dict[Source, list[int]] = {}  # indices in parsed.observations
    closings: dict[Source, list[tuple[int, str]]] = {}  # each closing line's count of facts, and its place
    for number, raw in enumerate(each_line(text), start=1):
        label = LABEL.match(raw)
        line = raw[label.end() :] if label else raw
        evidence = f"{where}:{number}"
        record = _record(line)
        if record is None:
            if not line or line.isspace():
                continue
            others += 1
            if others <= MOST_NAMED:
                parsed.note(f"{evidence}: not a fact: {line[:60]!r}")
            if others < MOST_OTHERS:
                continue
            parsed.note(f"{evidence}: the rest of the file was not read")
            break
        source = (label[1] if label else "", record["at"], record["probe"])
        if speakers is not None and (objection := speakers.objection(source[0], record)) is not None:
            refusals.note(objection, number)
            continue
        if "end" in record:
            closings.setdefault(source, []).append((record["end"], evidence))
            if "utc" in record:
                parsed.saw("probe.stamp", record["at"], [record["run"], record["utc"]], "run and UTC", evidence)
            continue
        facts.setdefault(source, []).append(len(parsed.observations))
        value, why = record["value"], record.get("why")
        if value == "":  # no name, version or id is empty: two nodes without one are not alike
            value, why = None, why or "an empty text"
        parsed.saw(record["quantity"], record["subject"], value, record["unit"], evidence, why)
    by_label = speakers.as_labelled(_CLOSINGS.findall(text)) if refusals and speakers is not None else None
    if by_label is not None:
        return parse(text, where, by_label)
    for source, ends in closings.items():
        _close(parsed, source, ends, len(facts.get(source, ())))
    for source, places in facts.items():
        if len(ends := closings.get(source, [])) != 1 or ends[0][0] != len(places):
            _doubt(parsed, places, source[2])
            parsed.note(f"{where}: {source[2]} on {source[1]} {UNFINISHED}: {len(places)} facts and no closing line")
    if others > MOST_NAMED:
        parsed.note(f"{where}: {others} lines are no facts")
    parsed.problems += refusals.problems()
    return parsed if facts or parsed.problems else parsed.note(f"{where}: holds no fact")


def _close(parsed: Parsed, source: Source, ends: list[tuple[int, str]], arrived: int) -> None:
    """probe.NAME.finished: true if exactly one closing line arrived and its count of facts matches."""
    _, at, probe = source
    evidence = ends[-1][1]
    if len(ends) == 1 and ends[0][0] == arrived:
        parsed.saw(f"probe.{probe}.finished", at, True, "flag", evidence)
        return
    counts = " and ".join(str(end) for end, _ in ends)  # cut off, or written twice
    parsed.note(f"{evidence}: {probe} on {at} wrote {counts} facts, {arrived} arrived")
    why = f"{probe} says that it wrote {counts} facts, and {arrived} arrived"
    parsed.saw(f"probe.{probe}.finished", at, None, "flag", evidence, why)


def _doubt(parsed: Parsed, places: list[int], probe: str) -> None:
    """Turn the facts of a probe that ended early into remarks: half a report is not evidence of health."""
    for place in places:
        fact = parsed.observations[place]
        why = f"{probe} {UNFINISHED}; it had said {fact.value}"
        parsed.observations[place] = fact.model_copy(update={"value": None, "why": why})


def _record(line: str) -> dict[str, Any] | None:
    """Read a fact or closing line; None if it is neither. It runs once per fact of a fleet, so it must be fast."""
    if len(line) > _LONGEST:
        return None
    try:
        record = from_json(line, allow_inf_nan=False)
    except (ValueError, TypeError):  # TypeError: half of a surrogate pair, which cannot be encoded
        return None
    is_valid = type(record) is dict and (_is_closing(record) if "end" in record else _is_fact(record))
    return record if is_valid else None


def _is_closing(record: dict[str, Any]) -> bool:
    texts = (text for key, text in record.items() if key != "end")
    return record.keys() in (_CLOSING, _STAMPED) and type(record["end"]) is int and {*map(type, texts)} == {str}


def _is_fact(record: dict[str, Any]) -> bool:
    keys = record.keys()
    if keys != _FACT and keys != _EXPLAINED:
        return False
    value = record.pop("value")
    if {*map(type, record.values())} != {str}:
        return False
    record["value"] = value
    return bool(record.get("why")) if value is None else type(value) is str or _is_value(value)


def _is_value(value: object) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return -_MOST < value < _MOST
    return isinstance(value, list) and all(isinstance(item, str) for item in value)
