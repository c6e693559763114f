"""Lines and words of each room, with the difference to main; more than its number in pyproject.toml is an error.

    python tests/sizes.py                  # prints the table; exit code 1 where a room is above its number
    python tests/sizes.py --accept-lower   # writes the numbers of lines that fell, none of words

A room is one or more patterns of git, in which * crosses folders. A commit that raises a number says why beside it.
"""

import argparse
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "validation/bringup"
MAIN = "main"
NEW_FILES_TOO = "--untracked"


class Size(NamedTuple):
    room: str
    unit: str
    most: int
    now: int
    before: int | None  # None: this checkout has no main


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--accept-lower", action="store_true")
    table = ROOT / "pyproject.toml"
    limits = tomllib.loads(table.read_text())["tool"]["bringup"]
    sizes = [size for unit, measure in UNITS.items() for size in measured(ROOT, unit, limits[unit], measure)]
    wrong = [*above(sizes), *without_a_number(ROOT, limits["lines"])]
    if arguments.parse_args().accept_lower:
        table.write_text(lowered(table.read_text(), [size for size in sizes if size.unit == "lines"]))
    else:
        print("\n".join(lines(sizes)))
    print("".join(f"sizes: {text}\n" for text in wrong), end="", file=sys.stderr)
    return 1 if wrong else 0


def lines_of(folder: Path, room: str, revision: str = NEW_FILES_TOO) -> int:
    return sum(map(int, git(folder, "grep", "-I", "-h", "-c", "-e", "", revision, "--", *room.split()).split()))


def words_of(folder: Path, room: str, revision: str = NEW_FILES_TOO) -> int:
    return git(folder, "grep", "-I", "-h", "-o", "-E", "-e", "[^[:space:]]+", revision, "--", *room.split()).count("\n")


UNITS: dict[str, Callable[..., int]] = {"lines": lines_of, "words": words_of}


def measured(folder: Path, unit: str, limits: dict[str, int], measure: Callable[..., int]) -> list[Size]:
    has_main = bool(git(folder, "rev-parse", "--verify", "--quiet", MAIN))
    return [
        Size(room, unit, most, measure(folder, room), measure(folder, room, MAIN) if has_main else None)
        for room, most in limits.items()
    ]


def git(folder: Path, *arguments: str) -> str:
    """Return what git prints; nothing found is empty."""
    return subprocess.run(["git", "-C", folder, *arguments], capture_output=True, text=True, check=False).stdout


def lines(sizes: list[Size]) -> list[str]:
    width = max(len(size.room) for size in sizes)
    return [
        f"{size.room:{width}} {size.now:7,} of {size.most:7,} {size.unit}"
        + ("" if size.before is None or size.now == size.before else f" {size.now - size.before:+,}")
        for size in sizes
    ]


def above(sizes: list[Size]) -> list[str]:
    ways_out = "take some away, or raise the number in pyproject.toml and say why beside it"
    large = (size for size in sizes if size.now > size.most)
    return [f"{size.room}: {size.now:,} {size.unit}, at most {size.most:,}; {ways_out}" for size in large]


def without_a_number(folder: Path, limits: dict[str, int]) -> list[str]:
    """Name each folder of the package that no number holds."""
    rooms = {"/".join(file.split("/")[:3]) for file in git(folder, "ls-files", f"{PACKAGE}/*/*.py").split()}
    missing = sorted(room for room in rooms if f"{room}/*.py" not in limits)
    return [f"{room}: no number in pyproject.toml; add '\"{room}/*.py\"' to [tool.bringup.lines]" for room in missing]


def lowered(table: str, sizes: list[Size]) -> str:
    """Return the text of pyproject.toml with each number at most the size of now."""
    for size in sizes:
        key = re.escape(f'"{size.room}" = ')
        table = re.sub(rf"^({key})[\d_]+", rf"\g<1>{min(size.now, size.most)}", table, flags=re.MULTILINE)
    return table


if __name__ == "__main__":
    sys.exit(main())
