"""The `bringup` command. Exit codes everywhere: 0 pass, 1 the cluster failed a gate, 2 we could not tell (bad input
included)."""

# A file of this room holds verbs: their arguments, and what they do with them. Each verb imports what it needs when it
# is called: the phase scripts start `bringup` some 30 times in a run, and the libraries of the report and of the drills
# would double the time of each start.

from __future__ import annotations

import argparse
import contextlib
import errno
import importlib.metadata
import io
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn, TextIO, cast

from bringup.cli import daily, drilling, for_scripts, lists, reading, running, training
from bringup.cli.command_line import CANNOT_TELL, Printable, complain
from bringup.errors import BringupError

VERBS = (running, reading, training, daily, drilling, lists, for_scripts)  # in the order of --help
CLOSED_PIPE = 128 + signal.SIGPIPE


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:  # argparse prints the usage first: two lines where one is enough
        self.exit(CANNOT_TELL, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: list[str] | None = None) -> int:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a locale without ≥ shows ?, and the verdict stands
            stream.reconfigure(errors="replace")
    try:
        try:
            with contextlib.ExitStack() as shown:
                if sys.stdout is not None and sys.stderr is not None:  # None: it was closed before we were started
                    shown.enter_context(contextlib.redirect_stdout(cast(TextIO, Printable(sys.stdout))))
                    shown.enter_context(contextlib.redirect_stderr(cast(TextIO, Printable(sys.stderr))))
                return _verb(argv)
        finally:
            for stream in (sys.stdout, sys.stderr):
                if stream is not None:
                    stream.flush()
    except BrokenPipeError:
        return _nobody_reads()


def _verb(argv: list[str] | None) -> int:
    arguments = parser().parse_args(argv)
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores one on purpose
                signal.signal(number, _stop)
    try:
        verb: Callable[[argparse.Namespace], int] = arguments.verb
        return verb(arguments)
    except BrokenPipeError:
        raise
    except BringupError as error:
        complain(str(error))
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message += "; free some space there, then start it again"
            message += " (--resume keeps what had passed)" if hasattr(arguments, "resume") else ""
        complain(message)
    except KeyboardInterrupt:
        complain("interrupted")
    except Exception as error:  # a fault of ours must not read as exit code 1, "the cluster failed a gate"
        if os.environ.get("BRINGUP_TRACEBACK"):
            raise
        message = f"{type(error).__name__}: {error}"[:200]
        complain(f"a fault of bringup itself: {message}; BRINGUP_TRACEBACK=1 shows where")
    return CANNOT_TELL


def _nobody_reads() -> int:
    """`bringup … | head -1`: quiet, and as a program that SIGPIPE ended. Never 1, which says that the cluster
    failed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # what Python flushes at its end goes nowhere
            os.dup2(nowhere, stream.fileno())
    return CLOSED_PIPE


def _stop(number: int, frame: object) -> NoReturn:
    """A closed terminal and a TERM end a run as Ctrl-C does: jobs are cancelled, nothing is left behind."""
    raise KeyboardInterrupt


def parser() -> argparse.ArgumentParser:
    top = _Parser(prog="bringup", description=__doc__)
    top.add_argument("--version", action="version", version=f"bringup {importlib.metadata.version('bringup')}")
    verbs = top.add_subparsers(required=True, metavar="VERB", parser_class=_Parser)
    for module in VERBS:
        module.add(verbs)
    return top
