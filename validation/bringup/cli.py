"""The `bringup` command. Exit codes everywhere: 0 pass, 1 the cluster failed a gate, 2 we could not tell (bad input included)."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import NoReturn

from bringup import compare, pipeline, report, runs
from bringup import profile as profiles
from bringup.records import RecordError
from bringup.verbs import advise, drill, explain, judgement, measured, playbook, reporting, schema, scripts, training
from bringup.verbs.verb import CANNOT_TELL


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:  # argparse prints the usage first: two lines where one is enough
        self.exit(CANNOT_TELL, f"{self.prog}: {message}; see {self.prog} --help\n")


def main(argv: list[str] | None = None) -> int:
    arguments = _parser().parse_args(argv)
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if (
                signal.getsignal(number) is not signal.SIG_IGN
            ):  # nohup: whoever ignores a signal for us wants it ignored
                signal.signal(number, _stop)
    try:
        verb: Callable[[argparse.Namespace], int] = arguments.verb
        return verb(arguments)
    except (
        profiles.ProfileError,
        runs.RunError,
        RecordError,
        compare.NotComparable,
        pipeline.PipelineError,
        ValueError,
    ) as error:
        print(f"bringup: {report.plain(str(error))}", file=sys.stderr)
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            said += "; free some space there, then start it again"
            said += " (--resume keeps what had passed)" if hasattr(arguments, "resume") else ""
        print(f"bringup: {report.plain(said)}", file=sys.stderr)
    except KeyboardInterrupt:
        print("bringup: interrupted", file=sys.stderr)
    except Exception as error:  # a fault of ours must not read as exit code 1, "the cluster failed a gate"
        if os.environ.get("BRINGUP_TRACEBACK"):
            raise
        print(
            f"bringup: a fault of bringup itself: {report.plain(f'{type(error).__name__}: {error}')[:200]}; "
            "BRINGUP_TRACEBACK=1 shows where",
            file=sys.stderr,
        )
    return CANNOT_TELL


def _stop(number: int, frame: object) -> NoReturn:
    """A closed terminal and a TERM end a run as Ctrl-C does: jobs are cancelled, nothing is left behind."""
    raise KeyboardInterrupt


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bringup", description=__doc__)
    added = parser.add_subparsers(required=True, metavar="VERB", parser_class=_Parser)
    for verb in (playbook, judgement, explain, reporting, training, advise, measured, drill, schema, scripts):
        verb.add(added)
    return parser
