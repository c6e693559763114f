"""Change one line of the judge at a time, and see whether the unit tests or the recordings notice.

    python tests/golden/mutate.py              # each line of mutants.jsonl: who noticed, and whether that is as stored
    python tests/golden/mutate.py --accept     # store who noticed
    python tests/golden/mutate.py --choose     # choose mutants anew; the same code gives the same ones

A mutant is a line of the package in its own words, so it is found again when it moves to another file. One whose line
is gone is reported: choose one in its place, in the code that does its work now.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MUTANTS = Path(__file__).parent / "mutants.jsonl"
PACKAGE = "validation/bringup"
NUMBER = 50
LIMIT_S = 240
CHANGES = (
    (r" <= ", " < "),
    (r" >= ", " > "),
    (r" < ", " <= "),
    (r" > ", " >= "),
    (r" == ", " != "),
    (r" is not None", " is None"),
    (r" not in ", " in "),
    (r"\bif not ", "if "),
    (r"\ball\(", "any("),
    (r"\bany\(", "all("),
    (r"\bmax\(", "min("),
    (r"\bmin\(", "max("),
    (r"\bmedian\(", "min("),
    (r" and ", " or "),
    (r" or ", " and "),
    (r" \+ 1\b", ""),
    (r" - 1\b", ""),
    (r"\[0\]", "[-1]"),
    (r"\[1:\]", "[0:]"),
    (r"Outcome\.FAIL\b", "Outcome.WARN"),
    (r"Kind\.ABSENT\b", "Kind.UNKNOWN"),
    (r"\bTrue\b", "False"),
)
TESTS = {  # of a file of the package: the tests that are about it; the first pattern counts
    "judge.py": "tests/test_judge.py tests/test_rules.py tests/checks",
    "plan/rules.py": "tests/test_rules.py tests/test_judge.py",
    "derive/observed.py": "tests/test_parsers.py tests/test_judge.py tests/checks",
    "derive/fold.py": "tests/checks/test_folds.py tests/checks/gpu tests/checks/test_fabric.py",
    "derive/filesystem.py": "tests/checks/filesystem tests/checks/test_folders.py",
    "derive/gpu.py": "tests/checks/gpu tests/checks/test_devices.py",
    "derive/[fr]a*.py": "tests/checks/test_fabric.py tests/checks/test_rails.py tests/checks/test_rail_stops.py",
    "derive/na*.py": "tests/checks/test_names.py",
    "derive/node.py": "tests/checks/test_node.py",
    "derive/sweep.py": "tests/checks/test_sweep.py tests/checks/test_dcgm.py",
    "derive/sl*.py": "tests/checks/test_slurm.py",
    "derive/load.py": "tests/checks/test_load.py",
    "derive/provenance.py": "tests/checks/test_run.py",
    "derive/[bmst]*.py": "tests/checks/training",
    "derive/*": "tests/checks/nccl",
    "evidence/*": "tests/evidence tests/test_parsers.py tests/test_real_output.py",
}
MUTATED = {  # the judge, the rules, the folds, the readers: how many lines of a file may be chosen
    "judge.py": 11,
    "plan/rules.py": 6,
    "derive/*.py": 2,
    "evidence/*.py": 1,
}

Mutant = dict[str, object]  # file, line, mutated, tests (noticed), golden (noticed)


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("--choose", "--accept"):
        arguments.add_argument(option, action="store_true")
    chosen = arguments.parse_args()
    if chosen.choose:
        write(choose())
        return 0
    mutants = [json.loads(line) for line in MUTANTS.read_text().splitlines()]
    now = list(mutants)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, result in enumerate(pool.map(tried, mutants)):
            now[number] = result
            if chosen.accept:
                write(now)
    return 0 if now == mutants else 1


def choose() -> list[Mutant]:
    """A few of each file, so that a long file does not fill the list."""
    chance = random.Random(27)
    chosen: dict[str, Mutant] = {}
    for pattern, number in MUTATED.items():
        for path in sorted((ROOT / PACKAGE).glob(pattern)):
            candidates = list(mutants_of(path))
            chosen |= {
                str(mutant["line"]): mutant for mutant in chance.sample(candidates, min(number, len(candidates)))
            }
    return sorted(chance.sample(list(chosen.values()), NUMBER), key=lambda mutant: str(mutant["file"]))


def mutants_of(path: Path) -> Iterator[Mutant]:
    lines = re.sub(r'""".*?"""', "", path.read_text(), flags=re.DOTALL).splitlines()
    for line in lines:
        code = line.split("  #")[0]
        if lines.count(line) > 1 or code.lstrip().startswith(("#", "from ", "import ", "def ", "@")) or '"' in code:
            continue
        for pattern, instead in CHANGES:
            if re.search(pattern, code):
                mutated = re.sub(pattern, instead, code, count=1)
                yield {"file": str(path.relative_to(ROOT / PACKAGE)), "line": line.strip(), "mutated": mutated.strip()}
                break


def tried(mutant: Mutant) -> Mutant:
    with tempfile.TemporaryDirectory(prefix="bringup-mutant-") as folder:
        tree = copy_of_checkout(Path(folder))
        path = place_of(mutant, tree)
        result = mutant | {"tests": None, "golden": None}
        if path is not None:
            path.write_text(path.read_text().replace(str(mutant["line"]), str(mutant["mutated"])))
            file = path.relative_to(tree / PACKAGE).as_posix()
            tests = next((tests for pattern, tests in TESTS.items() if fnmatch(file, pattern)), "tests/test_judge.py")
            pytest = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", "not cluster", *tests.split())
            result |= {"tests": fails(tree, *pytest), "golden": fails(tree, "tests/golden/golden_verdicts.py")}
    noticed = " and ".join(name for name in ("tests", "golden") if result[name]) or "nobody"
    changed = "" if "tests" not in mutant or mutant == result else "  (not as stored)"
    print(f"{noticed if path else 'line is gone':<16} {mutant['file']}: {mutant['mutated']}{changed}", flush=True)
    return result


def place_of(mutant: Mutant, tree: Path) -> Path | None:
    """The file that has the line now: its own, or the only other one."""
    own = tree / PACKAGE / str(mutant["file"])
    files = [own] if own.exists() else []
    files += [path for path in sorted((tree / PACKAGE).rglob("*.py")) if path != own]
    having = [path for path in files if str(mutant["line"]) in map(str.strip, path.read_text().splitlines())]
    return having[0] if having and (having[0] == own or len(having) == 1) else None


def fails(tree: Path, *arguments: str) -> bool | None:
    """None: it did not end, because of the mutant or of a busy machine."""
    variables = {**os.environ, "PYTHONPATH": str(tree / "validation"), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, *arguments], cwd=tree, env=variables, capture_output=True, timeout=LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    return done.returncode != 0


def copy_of_checkout(folder: Path) -> Path:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    for name in listed.stdout.splitlines():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, folder / name)
    return folder


def write(mutants: list[Mutant]) -> None:
    MUTANTS.write_text("".join(f"{json.dumps(mutant)}\n" for mutant in mutants))


if __name__ == "__main__":
    sys.exit(main())
