"""Change one piece of the product at a time: which test notices?

    python validation/benchmarks/mutants.py              # all of mutants.jsonl; exit code 1: one is not as stored
    python validation/benchmarks/mutants.py run/ fold    # those whose file has one of these words in its path
    python validation/benchmarks/mutants.py --since main # those that were changed since, or whose file or tests were
    python validation/benchmarks/mutants.py --accept     # store who noticed

A line of mutants.jsonl: `file`; `was`, which stands in it once, and `becomes`; `tests`, the files about it; and
`noticed`, the test that failed. That one is tried first, so a mutant that dies as it did costs one test. Then come
`tests`, then the recordings. A mutant that nobody notices is a missing test. One whose code is gone is renewed in the
code that does its work now, or leaves with it.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = Path(__file__).with_name("mutants.jsonl")
JUDGED = re.compile(r"validation/bringup/(judge|answers|derive|evidence|plan|report|results)\b")
RECORDINGS = "tests/golden"  # they see what is judged and said
LIMIT_S = 600
NOBODY, NOT_THERE, NO_END = "nobody", "its code is gone", "a test that does not end"
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
    with ExitStack() as stack:
        trees: queue.Queue[Path] = queue.Queue()
        for _ in range(options.jobs):
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="bringup-mutants-"))
            trees.put(copy_of_checkout(Path(folder)))
        noticed = list(stack.enter_context(ThreadPoolExecutor(options.jobs)).map(lambda one: tried(one, trees), chosen))
        tests = sorted({test for test in noticed if test.startswith("tests/")})
        without = failed(trees.get(), tests, until_first=False) if tests else []
    broken = {test for test in noticed if any(same_test(test, other) for other in without)}
    for mutant, test in zip(chosen, noticed, strict=True):
        if test in broken:
            print(f"{test} fails without a mutant, too: it did not notice {mutant['file']}: {mutant['becomes']}")
    survived = noticed.count(NOBODY)
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


def tried(mutant: Mutant, trees: queue.Queue[Path]) -> str:
    tree = trees.get()
    path = tree / mutant["file"]
    text = path.read_text() if path.is_file() else ""
    noticed = NOT_THERE
    try:
        if text.count(mutant["was"]) == 1:
            path.write_text(text.replace(mutant["was"], mutant["becomes"]))
            noticed = first_to_fail(tree, mutant)
    finally:
        if text:
            path.write_text(text)
        trees.put(tree)
    changed = "" if same_test(noticed, mutant["noticed"]) else f"  (stored: {mutant['noticed']})"
    print(f"{mutant['file']}: {mutant['becomes']}\n    {noticed}{changed}", flush=True)
    return mutant["noticed"] if not changed else noticed


def first_to_fail(tree: Path, mutant: Mutant) -> str:
    stored = [mutant["noticed"]] if mutant["noticed"].startswith("tests/") else []
    wider = [RECORDINGS] if JUDGED.match(mutant["file"]) else []
    for tests in (stored, mutant["tests"].split(), wider):
        if tests and (names := failed(tree, tests)):
            return names[0]
    return NOBODY


def failed(tree: Path, tests: Sequence[str], until_first: bool = True) -> list[str]:
    """Return the tests that fail. A name that pytest does not find is no failure."""
    variables = {**os.environ, "PYTHONPATH": str(tree / "validation"), "PYTHONDONTWRITEBYTECODE": "1"}
    pytest = (sys.executable, "-m", "pytest", "-q", "-rfE", "-p", "no:cacheprovider", "-m", "not cluster")
    try:
        done = subprocess.run(
            [*pytest, *(["-x"] if until_first else []), *tests],
            cwd=tree,
            env=variables | {"COLUMNS": "1000"},  # or names are cut
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
    return [name if " " not in name else name.partition("[")[0] for name in _FAILED.findall(done.stdout)]


def same_test(one: str, other: str) -> bool:
    return one.partition("[")[0] == other.partition("[")[0]


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
