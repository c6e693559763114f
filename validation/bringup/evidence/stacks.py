"""raw/stacks: stack and progress that a rank without progress wrote about itself -> facts.

train.rank.stack     the innermost frame of its main thread: `after_step (training/injected/rank_faults.py:96)`
train.rank.step      the last step that it finished
train.rank.entered   collectives that it had begun, on all groups

Of torch's flight recorder the probe asks for JSON, because its own files are pickles, and a pickle runs code when it is
read. Its facts support the blame of a rank; no gate judges them.

nccl.flight.begun   collectives that the rank had begun, in its furthest group; the remark names the last one
"""

from __future__ import annotations

import json
import re
from typing import Any

from bringup.evidence.parsed import Parsed, lines

_FRAME = re.compile(r'^  File "(.+)", line (\d+) in (.+)$')


def stack(text: str, where: str, subject: str) -> Parsed:
    """Read the main thread of the last dump, where faulthandler writes it last. No fact if there is no stack."""
    parsed = Parsed()
    rows = lines(text)
    heads = [number for number, line in enumerate(rows) if line.startswith(("Thread 0x", "Current thread 0x"))]
    if not heads or heads[-1] + 1 >= len(rows):
        return parsed
    match = _FRAME.match(rows[heads[-1] + 1])
    if match is not None:
        file = match[1].rpartition("site-packages/")[2]
        file = file[max(file.find("training/src/"), file.find("training/injected/"), 0) :]
        parsed.saw("train.rank.stack", subject, f"{match[3]} ({file}:{match[2]})", "text", f"{where}:{heads[-1] + 2}")
    return parsed


def progress(text: str, where: str, subject: str) -> Parsed:
    parsed = Parsed()
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        parsed.problems.append(f"{where}: not a record of progress: {text[:40]!r}")
        return parsed
    for key in ("step", "entered"):
        if isinstance(record, dict) and type(record.get(key)) is int:
            parsed.saw(f"train.rank.{key}", subject, record[key], "count", where)
    return parsed


def flight(text: str, where: str, subject: str) -> Parsed:
    parsed = Parsed()
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        record = None
    entries = record.get("entries") if isinstance(record, dict) else None
    if not isinstance(entries, list):
        parsed.problems.append(f"{where}: not a record of torch's flight recorder: {text[:40]!r}")
        return parsed
    known = [entry for entry in entries if _is_collective(entry)]
    if known:
        last = max(known, key=lambda entry: int(entry["collective_seq_id"]))
        done = "completed" if last.get("retired") is True or last.get("state") == "completed" else "not completed"
        name = f"{last['profiling_name'][:60]} of {_sizes(last)}, {done}"
        parsed.saw("nccl.flight.begun", subject, last["collective_seq_id"], "count", where, name)
    return parsed


def _is_collective(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and type(entry.get("collective_seq_id")) is int
        and 0 < entry["collective_seq_id"] < 2**63
        and type(entry.get("profiling_name")) is str
        and entry.get("is_p2p") is not True
    )


def _sizes(entry: dict[str, Any]) -> str:
    """Sizes of its input: 16 or 2x8; empty for a barrier."""
    sizes = entry.get("input_sizes")
    if not isinstance(sizes, list) or not sizes or not isinstance(sizes[0], list):
        return "no data"
    return "x".join(str(size) for size in sizes[0][:4])[:40] or "one element"
