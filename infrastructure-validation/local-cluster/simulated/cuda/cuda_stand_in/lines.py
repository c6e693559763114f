"""Which lines a program executed, for programs whose CUDA branches run nowhere else.

BRINGUP_LINES=FOLDER: every Python of the node appends `FILE:LINE` to a file of its own in FOLDER, each line once and at
once, because a rank may end without saying goodbye. Of the training and the probes alone, where a file speaks of CUDA.
validation/benchmarks/cuda_statements.py reads them.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[5]
OF_PROGRAMS = ("training", "infrastructure-validation/probes")


def record(folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    file = Path(folder) / f"{os.uname().nodename}.{os.getpid()}.lines"
    begin = tuple(f"{ROOT}/{part}/" for part in OF_PROGRAMS)
    wanted: dict[str, bool] = {}
    seen: set[tuple[str, int]] = set()

    def is_wanted(name: str) -> bool:
        if name not in wanted:
            path = Path(name)
            wanted[name] = path.is_absolute() and name.startswith(begin) and "cuda" in path.read_text().lower()
        return wanted[name]

    def saw(name: str, line: int) -> None:
        if (name, line) not in seen:
            seen.add((name, line))
            with file.open("a") as out:
                out.write(f"{Path(name).relative_to(ROOT)}:{line}\n")

    where = functools.cache(os.path.abspath)

    if sys.version_info >= (3, 12):
        _monitor(where, is_wanted, saw)
        return

    def in_frame(frame: FrameType, event: str, argument: Any) -> Any:
        if event == "line":
            saw(where(frame.f_code.co_filename), frame.f_lineno)
        return in_frame

    def at_call(frame: FrameType, event: str, argument: Any) -> Any:
        return in_frame if is_wanted(where(frame.f_code.co_filename)) else None

    sys.settrace(at_call)
    threading.settrace(at_call)


def _monitor(where: Callable[[str], str], is_wanted: Callable[[str], bool], saw: Callable[[str, int], None]) -> None:
    """Costs nothing where nobody looks: each line of other files is switched off at its first time."""
    monitoring = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
    tool = monitoring.PROFILER_ID
    monitoring.use_tool_id(tool, "bringup")

    def line(code: Any, number: int) -> Any:
        name = where(code.co_filename)
        if is_wanted(name):
            saw(name, number)
        return monitoring.DISABLE

    monitoring.register_callback(tool, monitoring.events.LINE, line)
    monitoring.set_events(tool, monitoring.events.LINE)
