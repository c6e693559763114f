"""A program that preflight starts, and its end with all that it started.

A process group is not all of it: the ranks of torchrun lead sessions of their own. Where torchrun dies they live on,
and hold the GPUs. So each program gets a mark in its environment, which all that it starts inherits.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ENDING_S = 40  # torchrun gives its ranks 30 s (--shutdown-timeout) before it kills them
KILLED_S = 5
LOOK_S = 0.1
MARK = "BRINGUP_PROGRAM"
_PROC = Path("/proc")


@dataclass(frozen=True)
class _Process:
    pid: int
    parent: int
    group: int
    session: int
    begun: str  # in the clock ticks of the kernel: a number may be another process's later
    is_marked: bool


@dataclass
class Program:
    child: subprocess.Popen[bytes]
    mark: str
    _seen: dict[int, str] = field(default_factory=dict)  # its processes, by number: when they began

    def left(self) -> list[_Process]:
        """Find what runs of it on this host: of its session, with its mark, or below one of these."""
        running = list(_own_processes(self.mark))
        ours = {each.pid for each in running if self._is_ours(each)}
        while more := {each.pid for each in running if each.parent in ours} - ours:
            ours |= more
        left = [each for each in running if each.pid in ours]
        self._seen = {each.pid: each.begun for each in left}
        return left

    def _is_ours(self, process: _Process) -> bool:
        is_known = self._seen.get(process.pid) == process.begun
        return process.is_marked or is_known or self.child.pid in (process.group, process.session)


def start(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> Program:
    """Start it in a session of its own. options: of subprocess.Popen."""
    mark = uuid.uuid4().hex
    child = subprocess.Popen(command, env={**environment, MARK: mark}, start_new_session=True, **options)
    return Program(child, mark)


def end(program: Program) -> None:
    """End all that is left. A shell ends at once; what it started, as srun or torchrun, may take a while, and ends what
    it started. SIGTERM goes to the process group, and to what has lost its parent; SIGKILL to all."""
    signalled: set[int] = set()
    deadline = time.monotonic() + ENDING_S
    while (left := program.left()) and time.monotonic() < deadline:
        program.child.poll()
        ours = {each.pid for each in left}
        for each in left:
            if each.pid not in signalled and (each.group == program.child.pid or each.parent not in ours):
                signalled.add(each.pid)
                _send(each.pid, signal.SIGTERM)
        time.sleep(LOOK_S)
    deadline = time.monotonic() + KILLED_S
    while (left := program.left()) and time.monotonic() < deadline:
        program.child.poll()
        for each in left:
            _send(each.pid, signal.SIGKILL)
        time.sleep(LOOK_S)
    with contextlib.suppress(subprocess.TimeoutExpired):  # in a call to a dead file server it does not end
        program.child.wait(KILLED_S)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _own_processes(mark: str) -> Iterator[_Process]:
    """Of this user; without those that have ended, and whose parent has not looked yet."""
    words = f"{MARK}={mark}".encode()
    for path in _PROC.iterdir():
        with contextlib.suppress(OSError, ValueError, IndexError):
            if not path.name.isdigit() or path.stat().st_uid != os.getuid():
                continue
            state, *numbers = (path / "stat").read_text().rpartition(")")[2].split()
            if state in "ZX":
                continue
            parent, group, session = map(int, numbers[:3])
            is_marked = words in (path / "environ").read_bytes().split(b"\0")
            yield _Process(int(path.name), parent, group, session, numbers[18], is_marked)
