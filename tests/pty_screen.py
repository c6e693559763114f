"""A program on a terminal of a stated size, and the lines that it leaves there, as a terminal emulator draws them."""

import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyte


@dataclass(frozen=True)
class Drawn:
    returncode: int
    raw: bytes  # all that was written to the terminal
    lines: list[str]  # what stays: what scrolled out of sight, then the screen


def drawn(
    command: Sequence[str | Path],
    columns: int,
    rows: int,
    cwd: Path,
    env: Mapping[str, str] | None = None,
    timeout: float = 120,
) -> Drawn:
    """Run `command` on a terminal of its own and return what it leaves. Raises TimeoutExpired."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    process = subprocess.Popen(
        list(map(str, command)),
        cwd=cwd,
        env={**environment, "TERM": "xterm-256color", **(env or {})},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
    )
    os.close(theirs)
    raw = bytearray()

    def read() -> None:
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the last process on this terminal has ended
                return
            if not part:
                return
            raw.extend(part)

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    try:
        code = process.wait(timeout)
    finally:
        process.kill()
    reader.join(10)
    os.close(ours)
    return Drawn(code, bytes(raw), _lines(bytes(raw), columns, rows))


def _lines(raw: bytes, columns: int, rows: int) -> list[str]:
    screen = pyte.HistoryScreen(columns, rows, history=100_000, ratio=0.5)
    pyte.ByteStream(screen).feed(raw)
    scrolled = ["".join(line[column].data for column in range(columns)).rstrip() for line in screen.history.top]
    lines = scrolled + [line.rstrip() for line in screen.display]
    while lines and not lines[-1]:
        lines.pop()
    return lines
