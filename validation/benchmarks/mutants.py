"""Change one piece of the product at a time: which test notices?

    python validation/benchmarks/mutants.py              # all of mutants.jsonl; exit code 1: one is not as stored
    python validation/benchmarks/mutants.py run/ fold    # those whose file has one of these words in its path
    python validation/benchmarks/mutants.py --since main # those that were changed since, or whose file or tests were
    python validation/benchmarks/mutants.py --accept     # store who noticed

A line of mutants.jsonl: `file`; `was`, which stands in it once, and `becomes`; `tests`, the files about it; and
`noticed`, the test that failed. That one is tried first, so a mutant that dies as it did costs one test. Then come
`tests`, then the recordings. A mutant that survives is a missing test. One whose code is gone is renewed in the code
that does its work now, or leaves with it.

Most mutants are inside a function: a fork of this process, which has the package already, gets the function's other
code. All others, and those that survive so, change the file in a copy of the checkout, and start pytest anew.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import inspect
import json
import multiprocessing
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import types
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = Path(__file__).with_name("mutants.jsonl")
JUDGED = re.compile(r"validation/bringup/(judge|answers|derive|evidence|plan|report|results)\b")
RECORDINGS = "tests/golden"  # they see what is judged and said
LIMIT_S = 600
SURVIVED, NOT_THERE, NO_END = "it survived", "its code is gone", "a test that does not end"
OPTIONS = (  # hypothesis' plug-in takes as long to start as all that is tested
    *("-q", "-rfE", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", "-m", "not cluster"),
)
VARIABLES = {"COLUMNS": "1000"}  # or names are cut
ONE_AT_A_TIME = threading.Lock()
_FAILED = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)

Mutant = dict[str, str]


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("words", nargs="*", metavar="WORD")
    arguments.add_argument("--since", metavar="COMMIT")
    arguments.add_argument("--accept", action="store_true")
    arguments.add_argument("--jobs", type=int, default=os.cpu_count())
    options = arguments.parse_args()
    mutants = [json.loads(line) for line in MUTANTS.read_text().splitlines()]
    chosen = list(of_interest(mutants, options.words, options.since))
    import_all()
    with ThreadPoolExecutor(options.jobs) as pool:
        noticed = list(pool.map(tried, chosen))
    tests = sorted({test for test in noticed if test.startswith("tests/")})
    without = failed(ROOT, tests, until_first=False) if tests else []
    broken = {test for test in noticed if any(same_test(test, other) for other in without)}
    for mutant, test in zip(chosen, noticed, strict=True):
        if test in broken:
            print(f"{test} fails without a mutant, too: it did not notice {mutant['file']}: {mutant['becomes']}")
    survived = noticed.count(SURVIVED)
    print(f"{len(chosen)} run, {len(chosen) - survived - noticed.count(NOT_THERE)} killed, {survived} survived")
    as_stored = [mutant["noticed"] == test for mutant, test in zip(chosen, noticed, strict=True)]
    if options.accept:
        for mutant, test in zip(chosen, noticed, strict=True):
            if test not in (NOT_THERE, *broken):
                mutant["noticed"] = test
        MUTANTS.write_text("".join(f"{json.dumps(mutant, ensure_ascii=False)}\n" for mutant in mutants))
    return 0 if all(as_stored) and not broken else 1


def of_interest(mutants: Sequence[Mutant], words: Sequence[str], since: str | None) -> Iterator[Mutant]:
    changed = None if since is None else set(git("diff", "--name-only", since))
    known = [] if since is None else git("show", f"{since}:{MUTANTS.relative_to(ROOT)}")
    stored = [json.loads(line) for line in known]
    for mutant in mutants:
        files = [mutant["file"], *mutant["tests"].split(), mutant["noticed"].partition("::")[0]]
        is_touched = changed is None or mutant not in stored or any(file in changed for file in files)
        if is_touched and (not words or any(word in mutant["file"] for word in words)):
            yield mutant


def tried(mutant: Mutant) -> str:
    text = (ROOT / mutant["file"]).read_text() if (ROOT / mutant["file"]).is_file() else ""
    noticed = NOT_THERE
    if text.count(mutant["was"]) == 1:
        noticed = first_to_fail(mutant, lambda tests: in_a_fork(mutant, tests))
        if noticed == SURVIVED:
            noticed = in_a_copy(mutant)
    changed = "" if same_test(noticed, mutant["noticed"]) else f"  (stored: {mutant['noticed']})"
    with ONE_AT_A_TIME:
        print(f"{mutant['file']}: {mutant['becomes']}\n    {noticed}{changed}", flush=True)
    return mutant["noticed"] if not changed else noticed


def first_to_fail(mutant: Mutant, failed_of: Callable[[Sequence[str]], list[str]]) -> str:
    stored = [mutant["noticed"]] if mutant["noticed"].startswith("tests/") else []
    wider = [RECORDINGS] if JUDGED.match(mutant["file"]) else []
    for tests in (stored, mutant["tests"].split(), wider):
        if tests and (names := failed_of(tests)):
            return names[0]
    return SURVIVED


def in_a_copy(mutant: Mutant) -> str:
    with tempfile.TemporaryDirectory(prefix="bringup-mutant-") as folder:
        tree = copy_of_checkout(Path(folder))
        path = tree / mutant["file"]
        path.write_text(path.read_text().replace(mutant["was"], mutant["becomes"]))
        return first_to_fail(mutant, lambda tests: failed(tree, tests))


def failed(tree: Path, tests: Sequence[str], until_first: bool = True) -> list[str]:
    """Return the tests that fail. A name that pytest does not find is no failure."""
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *OPTIONS, *(["-x"] if until_first else []), *tests],
            cwd=tree,
            env={**os.environ, **VARIABLES, "PYTHONPATH": str(tree / "validation")},
            capture_output=True,
            text=True,
            timeout=LIMIT_S if until_first else None,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [NO_END]
    if done.returncode not in (0, 1, 2, 5):  # 2: a module that cannot be imported
        print(f"pytest {' '.join(tests)}: {(done.stderr or done.stdout).strip()[-300:]}", file=sys.stderr, flush=True)
        return []
    return failures(done.stdout)


def failures(screen: str) -> list[str]:
    return [name if " " not in name else name.partition("[")[0] for name in _FAILED.findall(screen)]


# ---- in a fork


def in_a_fork(mutant: Mutant, tests: Sequence[str]) -> list[str]:
    """Return the test that fails when functions have other code. None does where the code is outside of functions."""
    with tempfile.NamedTemporaryFile("r") as screen:
        with ONE_AT_A_TIME:  # a fork holds the locks that other threads held
            process = multiprocessing.get_context("fork").Process(target=tests_run, args=(mutant, tests, screen.name))
            process.start()
        process.join(LIMIT_S)
        if process.exitcode is None:
            process.kill()
            return [NO_END]
        return failures(screen.read()) if process.exitcode == 1 else []


def tests_run(mutant: Mutant, tests: Sequence[str], output: str) -> None:
    screen = os.open(output, os.O_WRONLY)
    for stream in (1, 2):
        os.dup2(screen, stream)
    os.chdir(ROOT)
    os.environ |= VARIABLES
    is_other = exchange(ROOT / mutant["file"], mutant["was"], mutant["becomes"])
    code = int(pytest.main([*OPTIONS, "-x", *tests])) if is_other else 0
    sys.stdout.flush()
    os._exit(1 if code == 1 else 0)


def exchange(path: Path, was: str, becomes: str) -> bool:
    """Give the functions of a module other code. False: what is changed is outside of functions."""
    text = path.read_text()
    before, after = (compile(source, str(path), "exec") for source in (text, text.replace(was, becomes)))
    old, new = dict(functions(before)), dict(functions(after))
    if skeleton(before) != skeleton(after) or old.keys() != new.keys():
        return False
    changed = {code: new[name] for name, code in old.items() if code != new[name]}
    loaded = [item for item in gc.get_objects() if isinstance(item, types.FunctionType) and item.__code__ in changed]
    for function in loaded:
        function.__code__ = changed[function.__code__]
    return bool(loaded)


def functions(code: types.CodeType) -> Iterator[tuple[tuple[str, int], types.CodeType]]:
    """Yield those of a module and of its classes, by name and place; not those inside of others."""
    for number, part in enumerate(code.co_consts):
        if isinstance(part, types.CodeType):
            if part.co_flags & inspect.CO_OPTIMIZED:
                yield (part.co_qualname, number), part
            else:
                yield from functions(part)


def skeleton(code: types.CodeType) -> object:
    """Return what a module does when it is imported."""
    parts = [skeleton(part) if isinstance(part, types.CodeType) else part for part in code.co_consts]
    is_function = code.co_flags & inspect.CO_OPTIMIZED
    return code.co_name if is_function else (code.co_code, code.co_names, repr(parts))


def import_all() -> None:
    sys.path.insert(0, str(ROOT / "validation"))
    for module in pkgutil.walk_packages([str(ROOT / "validation/bringup")], "bringup."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)


def same_test(test: str, other: str) -> bool:
    return test.partition("[")[0] == other.partition("[")[0]


def git(*words: str) -> list[str]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def copy_of_checkout(folder: Path) -> Path:
    for name in git("ls-files", "-co", "--exclude-standard"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


if __name__ == "__main__":
    sys.exit(main())
