"""The user's command: started as it is, its output passed on, and ended when it prints nothing for too long."""

import contextlib
import os
import selectors
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from bringup.run import programs

LOOK_S = 0.2
REST_S = 2  # for output that is still in the pipe when the command has ended
KEPT_BYTES = 1 << 16
PASSED_ON = (signal.SIGUSR1, signal.SIGUSR2, signal.SIGCONT)  # Slurm warns so before a time limit
_PIECE = 1 << 16


@dataclass(frozen=True)
class Ended:
    code: int | None  # of the command; 128 + a signal's number; None: it was ended for a stall
    seconds: float
    output: bytes  # the last of it


def run(command: Sequence[str], environment: Mapping[str, str], stall_after_s: int | None) -> Ended:
    """Run a command with our standard output and error; all that it started is ended with it, if it ends badly."""
    begun = time.monotonic()
    with _signals_passed_on() as children:
        program = programs.start(command, environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        child = program.child
        children.append(child)
        try:
            output, is_stalled = _pass_on(child, stall_after_s)
            if is_stalled or child.wait() != 0:
                programs.end(program)
        except BaseException:
            programs.end(program)
            raise
        finally:
            for stream in (child.stdout, child.stderr):
                if stream is not None:
                    stream.close()
    code = None if is_stalled else child.returncode if child.returncode >= 0 else 128 - child.returncode
    return Ended(code, round(time.monotonic() - begun, 1), output)


@contextlib.contextmanager
def _signals_passed_on() -> Iterator[list[subprocess.Popen[bytes]]]:
    """To the process groups of the processes in what it yields: torchrun passes on to its ranks what it handles."""
    children: list[subprocess.Popen[bytes]] = []

    def pass_on(number: int, _: object) -> None:
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.pid, number)

    before = {number: signal.signal(number, pass_on) for number in PASSED_ON}
    try:
        yield children
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _pass_on(child: subprocess.Popen[bytes], stall_after_s: int | None) -> tuple[bytes, bool]:
    """Return (the last of its output, whether it printed nothing for so long)."""
    kept, ended_at = b"", None
    last_output = time.monotonic()
    with selectors.DefaultSelector() as streams:
        for stream, target in ((child.stdout, 1), (child.stderr, 2)):
            assert stream is not None  # both are pipes
            streams.register(stream, selectors.EVENT_READ, target)
        while streams.get_map():
            for key, _ in streams.select(timeout=LOOK_S):
                piece = os.read(key.fd, _PIECE)
                if not piece:
                    streams.unregister(key.fileobj)
                    continue
                _write(key.data, piece)
                kept, last_output = (kept + piece)[-KEPT_BYTES:], time.monotonic()
            now = time.monotonic()
            if child.poll() is not None:
                ended_at = ended_at or now
                if now - ended_at > REST_S:  # what it left running still holds the pipe
                    break
            elif stall_after_s is not None and now - last_output > stall_after_s:
                return kept, True
    if stall_after_s is not None and child.poll() is None:  # it closed its output, and will never print again
        try:
            child.wait(timeout=stall_after_s)
        except subprocess.TimeoutExpired:
            return kept, True
    return kept, False


def _write(target: int, data: bytes) -> None:
    while data:
        data = data[os.write(target, data) :]


def keep(command: Sequence[str], ended: Ended, path: os.PathLike[str]) -> None:
    """Keep the command, and the last of what it printed, for its owner alone: both may hold secrets."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(f"$ {shlex.join(command)}\n".encode() + ended.output)
