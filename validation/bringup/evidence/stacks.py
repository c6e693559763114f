"""raw/stacks: stack and progress that a rank without progress wrote about itself -> facts.

train.rank.stack     the innermost frame of its main thread: `after_step (training/injected/rank_faults.py:96)`
train.rank.step      the last step that it finished
train.rank.entered   collectives that it had begun, on all groups
"""

from __future__ import annotations

import json
import re

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
