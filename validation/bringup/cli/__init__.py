"""The `bringup` command. Exit codes everywhere: 0 pass, 1 the cluster failed a gate, 2 we could not tell (bad input
included)."""

import argparse
import contextlib
import errno
import io
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NoReturn, TextIO, cast

from bringup import registry
from bringup.cli.verbs import VERBS
from bringup.kernel.characters import Printable, meant
from bringup.kernel.errors import BringupError
from bringup.verb import CANNOT_TELL, FOR_SCRIPTS, GROUPS, RunName, complain

CLOSED_PIPE = 128 + signal.SIGPIPE
FIRST = """\
On a new cluster, from a folder that all nodes see:
  bringup site --init NAME               a site file from what Slurm says
  export BRINGUP_SITE=NAME
  bringup doctor                         what would stop a run, each with its cure; submits nothing
  bringup run discovery smoke --nodes 2  the first verdict
  bringup run                            all phases on all nodes
docs/00-first-day.md explains each; bringup --help lists all verbs.
"""
ENDS = """\
RUN is a name that `bringup runs` shows, a folder, or last, the newest one.
Exit codes: 0 all passed, 1 the cluster failed a gate, 2 we could not tell (bad
input, too), 130 Ctrl-C. `bringup help VERB`: its options, with an example.
"""


class _Parser(argparse.ArgumentParser):
    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = list(map(str, action.choices))
            others = "bringup --help lists the verbs" if action.dest == "verb" else f"there are {', '.join(choices)}"
            raise argparse.ArgumentError(action, f"no {value!r}{meant(str(value), choices) or f'; {others}'}")

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


def _parsed(argv: Sequence[str]) -> argparse.Namespace:
    """Parse arguments. Raises UsageError, and RunError of what names no run or no phase."""
    argv = [*argv[1:2], "--help"] if argv[:1] == ["help"] else argv
    is_known = argv[:1] in ([], ["--help"], ["-h"]) or argv[0] in VERBS
    top = parser(verbs=[name for name in argv[:1] if name in VERBS] if is_known else VERBS)
    arguments, options = top.parse_known_args(argv)
    known = VERBS.get(arguments.verb)
    verb = known and known.verb
    if options:
        asked = top if verb is None else top.verbs[arguments.verb]
        first = next((option for option in options if option.startswith("-")), None)
        near = "" if first is None else meant(first.partition("=")[0], asked._option_string_actions)
        asked.error(f"no option {first}{near}" if first else f"nothing takes {' '.join(options)}")
    if verb and verb.starts_scripts:
        from bringup.kernel.results import REPOSITORY  # not for every start: it takes 0.1 s

        if not (REPOSITORY / "infrastructure-validation").is_dir():
            cure = "clone it, then run `make venv`"
            top.error(f"{arguments.verb} starts scripts of a checkout, and this bringup has none: {cure}")
    for name, value in list(vars(arguments).items()):
        setattr(arguments, name, _with_runs(value))
    return arguments


def _with_runs(value: object) -> object:
    """Put folders in place of names of runs. Raises RunError."""
    if isinstance(value, list):
        return [_with_runs(each) for each in value]
    if not isinstance(value, RunName):
        return value
    from bringup.report import known_runs  # not for every start

    return known_runs.called(value.name, value.what)


def _verb(argv: list[str] | None) -> int:
    arguments = argparse.Namespace()
    try:
        arguments = _parsed(sys.argv[1:] if argv is None else argv)
        return _done(arguments)
    except BrokenPipeError:
        raise
    except BringupError as error:
        complain(str(error))
    except OSError as error:
        message = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            message += "; free some space there, then start it again"
            message += " (--resume keeps what had passed)" if hasattr(arguments, "resume") else ""
        elif error.errno in (errno.EACCES, errno.EROFS) and hasattr(arguments, "output"):
            message += "; -o FILE writes it elsewhere"
        complain(message)
    except KeyboardInterrupt as stop:
        complain("interrupted")
        return 128 + (stop.args[0] if stop.args else signal.SIGINT)
    except Exception as error:  # a fault of ours must not read as exit code 1, "the cluster failed a gate"
        if os.environ.get("BRINGUP_TRACEBACK"):
            raise
        message = f"{type(error).__name__}: {error}"[:200]
        complain(f"a fault of bringup itself: {message}; BRINGUP_TRACEBACK=1 shows where")
    return CANNOT_TELL


def _done(arguments: argparse.Namespace) -> int:
    if arguments.version:
        from importlib.metadata import version

        print(f"bringup {version('bringup')}")
        return 0
    if arguments.help_scripts:
        parser(for_scripts=True).print_help()
        return 0
    if arguments.verb is None:
        print(FIRST, end="")
        return CANNOT_TELL
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores one on purpose
                signal.signal(number, _stop)
    verb: Callable[[argparse.Namespace], int] = registry.called(VERBS[arguments.verb].does)  # a start imports no other
    return verb(arguments)


def _nobody_reads() -> int:
    """End `bringup … | head -1` quietly, as a program that SIGPIPE ended: 1 would say that the cluster failed."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):  # what Python flushes at its end goes nowhere
            os.dup2(nowhere, stream.fileno())
    return CLOSED_PIPE


def _stop(number: int, frame: object) -> NoReturn:
    """End a run as Ctrl-C does, for a closed terminal and a TERM: jobs are cancelled, nothing is left behind."""
    raise KeyboardInterrupt(number)


class _Top(_Parser):
    verbs: Mapping[str, _Parser]
    for_scripts: bool

    def format_help(self) -> str:
        """Show the verbs in groups, each in a line, with an example."""
        if self.for_scripts:
            return super().format_help()
        parts = ["usage: bringup VERB ...   (bringup --version, bringup --help-scripts)\n"]
        for title in GROUPS:
            verbs = {name: known.verb for name, known in VERBS.items() if known.group == title}
            if not verbs:  # their room was taken out
                continue
            lines = [f"  {name:<14} {verb.help}" for name, verb in verbs.items()]
            parts.append("\n".join([title, *lines, f"      {next(iter(verbs.values())).example}", ""]))
        return "\n".join([*parts, ENDS])


def parser(for_scripts: bool = False, verbs: Iterable[str] = VERBS) -> _Top:
    """Make the parser of these verbs. for_scripts: its --help lists those of phase scripts, not those for people."""
    top = _Top(prog="bringup", description=__doc__)
    top.add_argument("--version", action="store_true", help="show the version and exit")
    top.add_argument("--help-scripts", action="store_true", help="show the verbs that scripts call, and exit")
    parsers = top.add_subparsers(dest="verb", metavar="VERB", parser_class=_Parser)
    for name, (verb, group, _) in ((name, VERBS[name]) for name in verbs):
        shown: dict[str, Any] = {"help": verb.help} if (group == FOR_SCRIPTS) is for_scripts else {}
        added = parsers.add_parser(
            name,
            description=verb.description or verb.help,
            epilog=verb.example and f"example: {verb.example}",
            **shown,
        )
        for flags, options in verb.arguments:
            default = options.get("default")
            added.add_argument(*flags, **options | {"default": default()} if callable(default) else options)
    top.verbs, top.for_scripts = parsers.choices, for_scripts
    return top
