"""A Python that has torch and transformers already: importing them takes a rank of a small training most of its time.

`python()` is a program to start instead of sys.executable. It sends what it was called with to a server, which forks
the process that runs it, with the caller's environment, folder and streams; both end alike, and signals are passed on.
All these processes have one hash seed: what depends on the order of a set shows only between ranks of a cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PRELOADED = (
    *("torch.distributed.run", "torch.distributed.fsdp", "torch.distributed.tensor", "torch.profiler"),
    *("transformers.trainer", "transformers.models.llama.modeling_llama", "accelerate.commands.launch"),
)
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1)
CALLER = f"""\
import json, os, signal, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(os.path.dirname(os.path.abspath(__file__)) + "/server")
def passed_on(number, _):
    try:
        server.send(bytes([number]))
    except OSError:
        pass
for number in {[int(each) for each in PASSED_ON]}:
    signal.signal(number, passed_on)
call = json.dumps([sys.argv[1:], dict(os.environ), os.getcwd()]).encode()
socket.send_fds(server, [len(call).to_bytes(4)], [0, 1, 2])
server.sendall(call)
code = int(server.recv(16) or b"-9")
if code < 0:
    if code != -signal.SIGKILL:
        signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


@functools.cache
def python() -> str:
    """Its path."""
    return start(os.environ)


def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on what the tested code starts by sys.executable is warm, and so are the ranks of a torchrun."""
    warm = python()
    monkeypatch.setattr(sys, "executable", warm)
    monkeypatch.setenv("PYTHON_EXEC", warm)


def start(environment: Mapping[str, str], preloaded: Iterable[str] = PRELOADED) -> str:
    """Return the path of another one, which imports these in this environment. The server ends with the tests."""
    folder = Path(tempfile.mkdtemp(prefix="bringup-warm-"))
    caller = folder / "python"
    (folder / "caller.py").write_text(CALLER)
    # a path behind #! may hold no space
    caller.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -IS {folder}/caller.py "$@"\n')
    caller.chmod(0o755)
    at_import = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HF_HOME": f"{folder}/hf"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    server = subprocess.Popen([sys.executable, __file__, folder, *preloaded], env={**environment, **at_import}, **pipes)

    def close() -> None:
        server.communicate()  # the end of its stdin ends it
        shutil.rmtree(folder)

    atexit.register(close)
    assert server.stdout.read(1) == b"+", "the server did not start"
    return str(caller)


def serve(folder: str, preloaded: Iterable[str]) -> None:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{folder}/server")
    listening.listen(64)
    for name in preloaded:
        importlib.import_module(name)
    gc.freeze()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    os.write(1, b"+")
    while True:
        ready, _, _ = select.select([listening, 0], [], [])
        if 0 in ready:
            return
        caller, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os._exit(answered(caller))
        caller.close()


def answered(caller: socket.socket) -> int:
    size, streams, _, _ = socket.recv_fds(caller, 4, 3)
    call = b""
    while len(call) < int.from_bytes(size):
        call += caller.recv(65536)
    child = os.fork()
    if child == 0:
        caller.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        # the server's may be files, and objects that were made for them seek where the caller's are pipes
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)  # noqa: SIM115
        os.setsid()
        end(run, *json.loads(call))
    for stream in streams:
        os.close(stream)
    ended = os.pidfd_open(child)
    while ended not in select.select([caller, ended], [], [])[0]:
        numbers = caller.recv(16)
        for number in numbers or [signal.SIGKILL]:  # its caller is gone: it was killed
            os.kill(child, number)
        if not numbers:
            break
    _, status = os.waitpid(child, 0)
    with contextlib.suppress(OSError):
        caller.sendall(str(os.waitstatus_to_exitcode(status)).encode())
        caller.recv(1)  # an unread signal would cost the caller its answer
    return 0


def end(program: Callable[..., None], *arguments: object) -> None:
    """Run it, and end with its exit code. An interpreter that tidies up would free what it shares with the server."""
    code: object = 0
    try:
        program(*arguments)
    except SystemExit as left:
        code = left.code
        if code is not None and not isinstance(code, int):
            print(code, file=sys.stderr)
            code = 1
    except BaseException:  # noqa: BLE001  # as an interpreter does at its end
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(code or 0))


def run(arguments: list[str], environment: dict[str, str], folder: str) -> None:
    """As `python arguments` would."""
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:1] = paths
    if any(Path(path, "sitecustomize.py").is_file() for path in paths):
        sys.modules.pop("sitecustomize", None)
        importlib.import_module("sitecustomize")
    while arguments[0] == "-u":
        arguments = arguments[1:]
        sys.stdout.reconfigure(write_through=True)  # type: ignore[union-attr]
    if arguments[0] == "-c":
        sys.argv = ["-c", *arguments[2:]]
        sys.path.insert(0, "")
        exec(compile(arguments[1], "<string>", "exec"), {"__name__": "__main__"})
    elif arguments[0] == "-m":
        sys.argv = arguments[1:]
        sys.modules.pop(arguments[1], None)
        runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = arguments
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2:])
