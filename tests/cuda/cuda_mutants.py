#!/usr/bin/env python3
"""Mistakes in code for a GPU (mutants.yaml): does each meet what has to notice it?

    python tests/cuda/cuda_mutants.py                # the static ones, by the names of the CUDA build
    python tests/cuda/cuda_mutants.py RUN [RUN ...]  # those of these runs (RUNS)

A run has to pass in a copy of the tree. With a mistake in the copy it has to fail, and to say what `says` names. It
has the stand-in's devices, in a Python that has torch already (warm_python.py).
"""

import atexit
import compileall
import functools
import py_compile
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests"), str(ROOT / "validation/benchmarks")]

import on_stand_in  # noqa: E402
import warm_python  # noqa: E402
from mutants import copy_of_checkout  # noqa: E402
from torch_names import File  # noqa: E402
from torch_surface import Surface  # noqa: E402

TABLE = Path(__file__).with_name("mutants.yaml")
STATIC = "static"
LIMIT_S = 120
SHOWN_LINES = 5


@dataclass(frozen=True)
class Run:
    """What PYTHON in `words` is started with, in the tree: a warm one, with so many GPUs. RUN in it is a new folder.
    `leaves`: what it has to leave there, too; a training that was stopped leaves no metrics."""

    gpus: int
    words: tuple[str, ...]
    leaves: str | None = None


SINGLE = ("training/src/train_single_gpu.py", "--run-dir", "RUN", "--steps", "22", "--profiled-steps", "0")
RANKS = ("PYTHON", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
DDP = (
    *("training/src/train_ddp_single_node.py", "--run-dir", "RUN", "--stop-file", "RUN/stop"),
    *("--profiled-steps", "0", "--timeout", "20"),
)
RUNS = {
    "single": Run(1, ("PYTHON", *SINGLE), "metrics.json"),
    "ddp": Run(2, (*RANKS, *DDP), "metrics.json"),
    "no-waits": Run(1, ("PYTHON", "tests/cuda/no_waits.py", *SINGLE), "metrics.json"),
    "peaks": Run(1, ("PYTHON", "tests/cuda/peaks.py")),
}


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


def table(noticed_by: str | None = None) -> list[Mutant]:
    """All, or those that this notices."""
    mutants = [Mutant(**each) for each in yaml.safe_load(TABLE.read_text())]
    return [each for each in mutants if noticed_by in (None, each.noticed_by)]


def unnoticed_by_names(mutant: Mutant, surface: Surface) -> str | None:
    """What the check of names says instead of what it has to say; None: it notices the mistake."""
    wrong = [what for _, what in File(mutant.text(), surface).wrong]
    return None if any(str(mutant.says) in what for what in wrong) else f"{mutant.mistake}: {wrong or 'nothing wrong'}"


@functools.cache
def with_gpus(gpus: int) -> tuple[str, dict[str, str]]:
    """(a Python that has torch, and torch that has so many GPUs; its environment)"""
    folder = Path(tempfile.mkdtemp(prefix="bringup-gpus-")).resolve()
    atexit.register(shutil.rmtree, folder)
    environment = on_stand_in.variables(folder, gpus)
    environment |= {"GLOO_SOCKET_IFNAME": "lo", "PYTHONDONTWRITEBYTECODE": "1"}
    return warm_python.start(environment), environment


@functools.cache
def tree() -> Path:
    """A copy of the checkout, compiled, so that a run compiles what has a mistake alone: such a file is known by its
    hash, whatever its time. Who writes a mistake into it takes it back."""
    folder = Path(tempfile.mkdtemp(prefix="bringup-mutants-")).resolve()
    atexit.register(shutil.rmtree, folder)
    copy_of_checkout(folder)
    for part in ("training", "infrastructure-validation/probes"):
        compiled = py_compile.PycInvalidationMode.CHECKED_HASH
        assert compileall.compile_dir(folder / part, quiet=1, invalidation_mode=compiled)
    return folder


def unnoticed_by_run(mutant: Mutant | None, run: Run) -> str | None:
    """As above, of a run. Without a mutant: why it fails although nothing is wrong."""
    what = mutant.mistake if mutant else "no mistake"
    right = (tree() / mutant.file).read_text() if mutant else ""
    try:
        if mutant:
            (tree() / mutant.file).write_text(mutant.text(tree()))
        passed, output = ended(run)
    except subprocess.TimeoutExpired:
        return f"{what}: did not end in {LIMIT_S} s"
    finally:
        if mutant:
            (tree() / mutant.file).write_text(right)
    last = "\n".join(output.splitlines()[-SHOWN_LINES:])
    if mutant is None:
        return None if passed else f"fails without a mistake:\n{last}"
    if passed:
        return f"{what}: passes"
    return None if str(mutant.says) in output else f"{what}: fails without {mutant.says!r}:\n{last}"


def ended(run: Run) -> tuple[bool, str]:
    """(whether it passed, what it printed). Raises TimeoutExpired."""
    python, environment = with_gpus(run.gpus)
    with tempfile.TemporaryDirectory(prefix="bringup-run-") as folder:
        (Path(folder) / "raw").mkdir()
        words = [python if word == "PYTHON" else word.replace("RUN", folder) for word in run.words]
        variables = environment | {"PYTHON_EXEC": python}  # torchrun starts ranks with it
        done = subprocess.run(
            words, cwd=tree(), env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False
        )
        left = run.leaves is None or (Path(folder) / run.leaves).exists()
        return done.returncode == 0 and left, done.stdout + done.stderr


def tried(name: str) -> list[str | None]:
    """What this run did not notice; None for each mistake that it did, and for none."""
    misses: list[str | None] = []
    for each in (None, *table(f"run {name}")):
        begun = time.monotonic()
        misses.append(unnoticed_by_run(each, RUNS[name]))
        mark, what = "ok  " if misses[-1] is None else "MISS", each.mistake if each else "no mistake"
        print(f"{mark} {name}: {what} ({time.monotonic() - begun:.1f} s)", flush=True)
        if each is None and misses[-1]:
            break
    return misses


def main(names: list[str]) -> int:
    if set(names) - RUNS.keys():
        sys.exit(f"expected some of the runs {', '.join(RUNS)}")
    surface = None if names else Surface()
    misses = [unnoticed_by_names(each, surface) for each in table(STATIC)] if surface else []
    misses += [miss for name in names for miss in tried(name)]
    missed = [miss for miss in misses if miss]
    print(*missed, f"{len(misses)} tried, {len(missed)} not noticed", sep="\n")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
