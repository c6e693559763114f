"""The last collectives of a rank, recorded by torch's flight recorder, as JSON -> facts.

The probe asks for JSON, because the recorder's own files are pickles, and a pickle runs code when it is read. The facts
support the blame of a rank; no gate judges them.

nccl.flight.begun   collectives that the rank had begun, in its furthest group; the remark names the last one
"""

from __future__ import annotations

import json
from typing import Any

from bringup.evidence.parsed import Parsed


def parse(text: str, where: str, subject: str) -> Parsed:
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
