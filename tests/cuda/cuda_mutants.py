#!/usr/bin/env python3
"""Mistakes in code for a GPU (mutants.yaml): does each meet what has to notice it?

    python tests/cuda/cuda_mutants.py                   # the static ones, by the names of the CUDA build
    python tests/cuda/cuda_mutants.py NAME COMMAND ...  # those of a run: COMMAND is run in a copy of the tree

COMMAND has to pass in a copy without a mistake. With a mistake it has to fail, and to say what `says` names. Its
working folder is the copy, whose path is also in BRINGUP_TREE.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tests"))

from golden.mutate import copy_of_checkout  # noqa: E402
from torch_names import File  # noqa: E402
from torch_surface import Surface  # noqa: E402

TABLE = Path(__file__).with_name("mutants.yaml")
STATIC = "static"
LIMIT_S = 600
SHOWN_LINES = 5


@dataclass(frozen=True)
class Mutant:
    """`out_of_reach`: why nothing notices it; then there is no `noticed_by` (static, or run NAME) and no `says`."""

    mistake: str
    file: str
    old: str
    new: str
    noticed_by: str | None = None
    says: str | None = None
    out_of_reach: str | None = None

    def text(self, root: Path = ROOT) -> str:
        """The file with the mistake. Raises ValueError where the old text is not there once."""
        text = (root / self.file).read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{self.file}: expected once, observed {text.count(self.old)} times: {self.old}")
        return text.replace(self.old, self.new)


def table() -> list[Mutant]:
    return [Mutant(**each) for each in yaml.safe_load(TABLE.read_text())]


def unnoticed_by_names(mutant: Mutant, surface: Surface) -> str | None:
    """What the check of names says instead of what it has to say; None: it notices the mistake."""
    wrong = [what for _, what in File(mutant.text(), surface).wrong]
    return None if any(str(mutant.says) in what for what in wrong) else f"{mutant.mistake}: {wrong or 'nothing wrong'}"


def unnoticed_by_run(mutant: Mutant | None, command: Sequence[str]) -> str | None:
    """As above, of a run. Without a mutant: why the command fails although nothing is wrong."""
    with tempfile.TemporaryDirectory(prefix="bringup-mutant-") as folder:
        tree = copy_of_checkout(Path(folder))
        if mutant is not None:
            (tree / mutant.file).write_text(mutant.text(tree))
        variables = {**os.environ, "BRINGUP_TREE": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(
                command, cwd=tree, env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return f"{mutant.mistake if mutant else 'no mistake'}: did not end in {LIMIT_S} s"
    output = done.stdout + done.stderr
    last = "\n".join(output.splitlines()[-SHOWN_LINES:])
    if mutant is None:
        return f"fails without a mistake, code {done.returncode}:\n{last}" if done.returncode else None
    if done.returncode == 0:
        return f"{mutant.mistake}: passes"
    return None if str(mutant.says) in output else f"{mutant.mistake}: fails without {mutant.says!r}:\n{last}"


def main(arguments: list[str]) -> int:
    if not arguments:
        surface = Surface()
        misses = [unnoticed_by_names(each, surface) for each in table() if each.noticed_by == STATIC]
    else:
        name, *command = arguments
        mutants = [each for each in table() if each.noticed_by == f"run {name}"]
        if not mutants or not command:
            sys.exit(f"expected one of the runs {sorted({str(each.noticed_by) for each in table()})} and its command")
        misses = []
        for each in [None, *mutants]:
            misses.append(unnoticed_by_run(each, command))
            print(f"{'ok  ' if misses[-1] is None else 'MISS'} {each.mistake if each else 'no mistake'}", flush=True)
            if each is None and misses[-1]:
                break
    missed = [miss for miss in misses if miss]
    print(*missed, f"{len(misses)} tried, {len(missed)} not noticed", sep="\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
