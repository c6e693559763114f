"""A program that is started here, and its end with all that it started.

A process group is not all of it: the ranks of torchrun lead sessions of their own. Where torchrun dies they live on,
and hold the GPUs. So each program gets a mark in its environment, which all that it starts inherits.
"""

import contextlib
import os
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

ENDING_S = 40  # torchrun gives its ranks 30 s (--shutdown-timeout) before it kills them
KILLED_S = 5
LOOK_S = 0.1
MARK = "BRINGUP_PROGRAM"
_PROC = Path("/proc")


class _Process(NamedTuple):
    pid: int
    parent: int
    group: int
    session: int
    is_marked: bool


class Program(NamedTuple):
    child: subprocess.Popen[Any]  # of bytes or of text
    mark: str

    def left(self) -> list[_Process]:
        """Find what runs of it on this host: of its session, with its mark, or below one of these."""
        running = list(_own_processes(self.mark))
        ours = {each.pid for each in running if each.is_marked or self.child.pid in (each.group, each.session)}
        while more := {each.pid for each in running if each.parent in ours} - ours:
            ours |= more
        return [each for each in running if each.pid in ours]


def done(command: Sequence[str], timeout_s: float) -> subprocess.CompletedProcess[str] | None:
    """Run it to its end. None: it is not here, or it did not end in time."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def start(command: Sequence[str], environment: Mapping[str, str], **options: Any) -> Program:
    """Start it in a session of its own. options: of subprocess.Popen."""
    mark = uuid.uuid4().hex
    child = subprocess.Popen(command, env={**environment, MARK: mark}, start_new_session=True, **options)
    return Program(child, mark)


def end(program: Program, patience_s: float = ENDING_S) -> None:
    """End all that is left. A shell ends at once; what it started, as srun or torchrun, may take a while, and ends what
    it started. The signal goes to the process group, and to what has lost its parent; SIGKILL to all."""
    signalled: set[int] = set()
    for number, seconds in ((signal.SIGTERM, patience_s), (signal.SIGKILL, KILLED_S)):
        deadline = time.monotonic() + seconds
        while (left := program.left()) and time.monotonic() < deadline:
            program.child.poll()
            ours = {each.pid for each in left}
            first = [each.pid for each in left if each.group == program.child.pid or each.parent not in ours]
            for pid in ours if number == signal.SIGKILL else set(first) - signalled:
                signalled.add(pid)
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, number)
            time.sleep(LOOK_S)
    with contextlib.suppress(subprocess.TimeoutExpired):  # in a call to a dead file server it does not end
        program.child.wait(KILLED_S)


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
            yield _Process(int(path.name), parent, group, session, is_marked)
