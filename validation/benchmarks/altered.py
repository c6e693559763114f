"""Altered copies of a healthy run, made when they are judged: nearly every gate is seen with evidence that is not good.

No cluster makes such evidence. What the judge says about it is no truth to defend, only what must not change unnoticed.
"""

import json
import re
import shutil
import zlib
from pathlib import Path

from bringup.kernel import results
from bringup.kernel.run_folder import RunFolder

GROUPS = 4  # of quantities: what is judged after another gate is altered without it, too
WAYS = (*(f"{way}-{group}" for way in ("more", "less") for group in range(GROUPS)), "unknown", "silent")
_LABELLED = re.compile(r"(\d+: )?(\{.*\})")
Json = dict[str, object] | list[object] | str | float | bool | None


def copies(healthy: Path) -> None:
    """A copy of a folder of runs for each way, beside it."""
    for way in WAYS:
        copy = healthy.with_name(f"{healthy.name}-{way}")
        shutil.copytree(healthy, copy)
        for path in copy.rglob(results.RUN):
            alter(path.parent, way)


def alter(run: Path, way: str) -> None:
    """In place. Sums are made anew: it is not the point that evidence was edited."""
    nodes = json.loads((run / results.RUN).read_text())["nodes"]
    for path in run.glob("raw/**/*.jsonl"):
        lines = [altered(line, way, nodes) for line in path.read_text().splitlines()]
        path.write_text("".join(f"{line}\n" for line in lines if line is not None))
    metrics = run / results.METRICS
    if metrics.exists():
        fields = json.loads(metrics.read_text())
        metrics.write_text(json.dumps({name: moved(name, value, way, None) for name, value in fields.items()}))
    closed = run / results.CLOSED
    closed.write_text(json.dumps(json.loads(closed.read_text()) | {"files": RunFolder(run).checksums()}))


def altered(line: str, way: str, nodes: list[str]) -> str | None:
    """more, less: values of one group of quantities, on each node by another factor; unknown: those of the first node;
    silent: the last node says nothing."""
    match = _LABELLED.fullmatch(line)
    fact = json.loads(match[2]) if match else {}
    number = nodes.index(fact["at"]) if fact.get("at") in nodes else 0
    if way == "silent" and "at" in fact and number == len(nodes) - 1:
        return None
    if match is None or "value" not in fact:
        return line
    if way == "unknown" and number == 0:
        fact |= {"value": None, "why": "nobody looked"}
    else:
        fact["value"] = moved(fact["quantity"], fact["value"], way, number)
    return f"{match[1] or ''}{json.dumps(fact)}"


def moved(name: str, value: Json, way: str, number: int | None) -> Json:
    """number: of the node. None: of a record, whose counts, flags and texts stay, or it would not be read at all."""
    direction, _, group = way.partition("-")
    if not group or zlib.crc32(name.encode()) % GROUPS != int(group):
        return value
    factor = 1000 * (1 + (number or 0))
    return changed(value, factor if direction == "more" else 1 / factor, number)


def changed(value: Json, factor: float, number: int | None) -> Json:
    if isinstance(value, list):
        return [changed(part, factor * (1 + place), number) for place, part in enumerate(value)]
    if isinstance(value, dict):
        return {name: changed(part, factor, number) for name, part in value.items()}
    if isinstance(value, float):
        return value * factor + (factor > 1)
    if number is None or value is None:
        return value
    if isinstance(value, bool):
        return value is (factor < 1 and number > 0)
    return round(value * factor + (factor > 1)) if isinstance(value, int) else f"{value}-{number}"
