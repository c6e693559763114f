"""Lines that a user's program can print to keep a judge busy: no pattern and no reader takes long over them."""

import ast
import importlib
import pkgutil
import re
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

import bringup
import kernel_log
from bringup.kernel.facts import facts
from bringup.kernel.facts.parser_result import MOST_CHARACTERS, Parsed, cut, shortened
from bringup.readers import dcgm, launcher, monitor, nccl_log, nccl_tests, ras, slurm, smoke_jobs, srun, topology
from bringup.readers.known import signs
from bringup.readers.scripts import rounds_of_pairs
from factory import a_run
from loops import for_each
from tiers import in_test_all

LIMIT_S = 10.0  # of CPU, which a busy machine stretches, too; what is quadratic takes minutes
MEBIBYTE = 2**20
LONG_LINE = MEBIBYTE // 4
PIECES = (" ", "0", "a", "a.", "a ", "0,", "(", "/", "[", "=", "-", ": ", "\n", "\r")
FROM_LOGS = ("bringup.readers", "bringup.readers.known", "bringup.domains", "bringup.run.slurm", "bringup.report.drain")


class TooLong(Exception):
    pass


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Limits this process's own CPU time: the machine may be busy."""

    def too_long(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGVTALRM, too_long)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    except TooLong:
        raise AssertionError(f"{what} took longer than {seconds} s") from None
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def patterns_of(module: object) -> set[re.Pattern[str]]:
    """Those that it holds, in lists and tables too, and those that its functions name where they use them."""
    patterns: set[re.Pattern[str]] = set()

    def look(thing: object) -> None:
        if isinstance(thing, re.Pattern):
            patterns.add(thing)
        elif isinstance(thing, tuple | list):
            for part in thing:
                look(part)
        elif isinstance(thing, dict):
            for part in thing.values():
                look(part)

    for name, thing in vars(module).items():
        if not name.startswith("__"):
            look(thing)
    for node in ast.walk(ast.parse(Path(str(module.__file__)).read_text())):  # type: ignore[attr-defined]
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and ast.unparse(node.func.value) == "re":
            first = node.args[0]
            if node.func.attr != "escape" and isinstance(first, ast.Constant):
                patterns.add(re.compile(first.value))
    return patterns


def literals(pattern: re.Pattern[str]) -> list[str]:
    """The words that it looks for, in order."""
    words: list[str] = [""]

    def look(tree: object) -> None:
        for kind, value in tree:  # type: ignore[attr-defined]
            if kind is kinds.LITERAL:
                words[-1] += chr(value)
                continue
            words.append("")
            if kind is kinds.BRANCH:
                for branch in value[1]:
                    look(branch)
            elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT, kinds.SUBPATTERN, kinds.ASSERT, kinds.ASSERT_NOT):
                look(value[-1])

    look(parser.parse(pattern.pattern, pattern.flags))
    return [word for word in dict.fromkeys(words) if word]


def repeated(patterns: set[re.Pattern[str]], size: int) -> Iterator[str]:
    """The first word of each pattern, and each kind of letter, many times."""
    for piece in dict.fromkeys([*PIECES, *(word for pattern in patterns for word in literals(pattern)[:1])]):
        yield (piece * (size // len(piece) + 1))[:size]


def adversaries(patterns: set[re.Pattern[str]], size: int) -> Iterator[str]:
    """Each word of the patterns, and each kind of letter, many times; alone and behind the pattern's first word."""
    words_so_far: set[str] = set()
    for pattern in patterns:
        words = literals(pattern)
        for piece in (*words[:10], *PIECES):
            for head in ("", *words[:1]):
                if head + piece not in words_so_far:
                    words_so_far.add(head + piece)
                    yield (head + piece * (size // len(piece)))[:size]
        if words:
            yield ("".join(words[:2]) * size)[:size]


def modules() -> list[object]:
    modules_of_bringup = pkgutil.walk_packages(bringup.__path__, "bringup.")
    return [importlib.import_module(each.name) for each in modules_of_bringup if each.name.startswith(FROM_LOGS)]


MODULES = {str(module.__name__): module for module in (*modules(), kernel_log) if patterns_of(module)}  # type: ignore[attr-defined]


def test_the_patterns_are_found():
    assert sum(len(patterns_of(module)) for module in MODULES.values()) > 150
    assert {"bringup.readers.known.signs", "bringup.readers.nccl_log", "kernel_log"} <= MODULES.keys()


@for_each(*MODULES)
def test_no_pattern_takes_long_over_a_line_that_was_cut(name: str):
    for pattern in patterns_of(MODULES[name]):
        for line in adversaries({pattern}, MOST_CHARACTERS):
            with within(LIMIT_S, f"{pattern.pattern!r} on {line[:40]!r}…"):
                pattern.search(line)


def of_a_log(reader: Callable[[str, str], object]) -> Callable[[str, str], object]:
    """As evidence/reading.py hands a log over."""
    return lambda text, where: reader(shortened(text), where)


LOGS: dict[str, Callable[[str, str], object]] = {
    "launch errors": of_a_log(srun.launch_errors),
    "own words": of_a_log(
        lambda text, where: srun.launch_errors(f"{text}\nsrun: error: n1: task 1: Exited with exit code 1\n", where)
    ),
    "launcher": of_a_log(partial(launcher.log, run=a_run("run_ddp_2node"))),
    "NCCL": of_a_log(lambda text, where: nccl_log.parse({"a.log": f"NCCL INFO {text}"}, where, "2-nodes", "INFO", 1)),
    "signs": lambda text, where: signs.in_lines(signs.numbered(text), where),
}
TABLES: dict[str, Callable[[str, str], object]] = {
    "nodes": slurm.nodes,
    "config": slurm.config,
    "cgroup.conf": slurm.cgroup_conf,
    "plugins": slurm.mpi_list,
    "ping": smoke_jobs.ping,
    "job": partial(smoke_jobs.ended_job, name="memory"),
    "requeue": smoke_jobs.requeue,
    "bad exit": smoke_jobs.bad_exit,
    "rounds": rounds_of_pairs,
    "error file": launcher.error_file,
    "facts": facts.parse,
    "samples": partial(monitor.parse, duration_s=1.0),
    "nccl-tests": partial(nccl_tests.parse, binary="all_reduce_perf", subject="2-nodes"),
    "RAS": ras.parse,
    "stack": partial(launcher.stack, subject="n0/rank0"),
    "DCGM": partial(dcgm.parse, node="n0"),
    "topology": partial(topology.parse, node="n0"),
}


@in_test_all
@for_each(*LOGS, *TABLES)
def test_no_reader_takes_long_over_a_long_line(name: str):
    reader = (LOGS | TABLES)[name]
    module = importlib.import_module(getattr(getattr(reader, "func", reader), "__module__", ""))
    patterns = patterns_of(slurm) | patterns_of(launcher) if name in LOGS else patterns_of(module)
    for line in repeated(patterns, LONG_LINE):
        with within(LIMIT_S, f"{name} on {line[:40]!r}…"):
            reader(line, "f")


def test_a_long_line_keeps_its_beginning_and_its_end():
    line = "1: " + "#" * MEBIBYTE + "srun: error: n1: task 1: Killed"
    assert cut(line).startswith("1: ###")
    assert cut(line).endswith("srun: error: n1: task 1: Killed")
    assert len(cut(line)) <= MOST_CHARACTERS + len(" … ")
    assert cut("short") == "short"


@for_each("/dev/shm", "execve", "NET/OFI ", "ibv_create_a", "NCCL WARN ", "[[", "/dev/shm/x ")
def test_a_file_of_such_lines_is_searched_in_seconds(piece: str):
    """A twentieth of the window that is searched of a log."""
    with within(LIMIT_S, piece):
        signs.in_lines(signs.numbered(f"{piece * (MOST_CHARACTERS // len(piece))}\n" * 50), "f")


def test_a_fact_that_no_probe_would_write_is_none():
    parsed: Parsed = facts.parse('0: {"probe": "p", "at": "' + "n" * MEBIBYTE + '", "end": 0}\n', "f")
    assert parsed.observations == []
    assert len(parsed.problems) == 1
    assert len(parsed.problems[0]) < 200
