"""How this build compares with another one: CPU seconds, memory, and lines of bringup that are loaded.

    git worktree add /tmp/before COMMIT
    python validation/benchmarks/ratios.py /tmp/before             # judge and report of 1,024 nodes with 8 GPUs each

Both builds run under this Python, one after the other and the other way round in the next pair, so that a machine that
gets busier slows both. Printed are the median of each, and their ratio: below 1 this build is the smaller one. Loaded
are lines of modules in sys.modules, after a recorded run was really judged, and reported.
"""

import argparse
import os
import platform
import resource
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[2]
RECORDED = "tests/golden/recordings/local-healthy.tar.xz"
STARTS = {"--help": ["--help"], "doctor": ["doctor"], "explain of a phase": ["explain", "RUN"]}
LOADED = """
import contextlib, io, sys
from pathlib import Path
verb, folder = sys.argv[1:]
if verb == "judge":
    import importlib, importlib.util
    room = "bringup.kernel" if importlib.util.find_spec("bringup.kernel") else "bringup"  # in earlier builds
    importlib.import_module(f"{room}.judge").judge_folder(Path(folder))
else:
    from bringup import cli
    with contextlib.redirect_stdout(io.StringIO()):
        cli.main([verb, folder])
files = [module.__file__ for name, module in sys.modules.items() if name.split(".")[0] == "bringup"]
print(sum(len(Path(file).read_text().splitlines()) for file in files if file))
"""


Row = tuple[str, list[list[float]]]  # what, and the numbers of the build before and of this one


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("before", type=Path, help="a checkout of the other commit")
    arguments.add_argument("--nodes", type=int, default=1024)
    arguments.add_argument("--pairs", type=int, default=3)
    chosen = arguments.parse_args()
    builds = [chosen.before.resolve(), HERE]
    print(" ".join(["python", *sys.argv]))
    print(f"{os.cpu_count()} cores, {platform.platform()}, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="bringup-ratios-") as folder:
        runs = [recorded(build, Path(folder) / name) for name, build in zip(("before", "now"), builds, strict=True)]
        rows = [starting(chosen.pairs, builds, runs, name) for name in STARTS]
        rows += [loaded(builds, runs, verb) for verb in ("judge", "report")]
        rows += large(chosen.pairs, builds, chosen.nodes)
    print(f"{'':<40} {'before':>9} {'now':>9} {'ratio':>7}")
    for what, (before, now) in ((what, map(statistics.median, of_builds)) for what, of_builds in rows):
        print(f"{what:<40} {before:>9.6g} {now:>9.6g} {now / before:>7.2f}")
    print(f"load at the end {os.getloadavg()[0]:.1f}")


def recorded(build: Path, folder: Path) -> Path:
    """Say which commit the build is, and return a recorded discovery of it."""
    log = subprocess.check_output(["git", "-C", str(build), "log", "-1", "--format=%h %s"], text=True)
    print(f"{folder.name:<6} {log}", end="")
    with tarfile.open(build / RECORDED) as packed:
        packed.extractall(folder, filter="data")
    return next(folder.glob("local-healthy/discovery/*"))


def in_pairs(pairs: int) -> list[int]:
    """Return which build comes when: before, now, now, before, …"""
    return [number for pair in range(pairs) for number in ((0, 1) if pair % 2 == 0 else (1, 0))]


def started(build: Path, *command: str) -> str:
    """Run this Python on the package of a build, wherever it is installed. Returns what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(build / "validation")}
    done = subprocess.run([sys.executable, *command], env=environment, cwd=build, capture_output=True, text=True)
    if "Traceback" in done.stderr or "cannot be" in done.stderr or " is not " in done.stderr:
        raise SystemExit(f"{build}: {done.stderr}")
    return done.stdout


def starting(pairs: int, builds: list[Path], runs: list[Path], name: str) -> Row:
    """CPU time of a start and of what it starts."""
    seconds: list[list[float]] = [[], []]
    for number in in_pairs(3 * pairs):  # they are short
        words = [word.replace("RUN", str(runs[number])) for word in STARTS[name]]
        begun = resource.getrusage(resource.RUSAGE_CHILDREN)
        started(builds[number], "-m", "bringup", *words)
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds[number].append(ended.ru_utime + ended.ru_stime - begun.ru_utime - begun.ru_stime)
    return f"bringup {name}, CPU s", seconds


def large(pairs: int, builds: list[Path], nodes: int) -> list[Row]:
    """Judge and report a made-up discovery, as judge_and_report.py of each build does it."""
    rows: list[list[list[str]]] = [[], []]
    for number in in_pairs(pairs):
        printed = started(builds[number], "validation/benchmarks/judge_and_report.py", "--one", str(nodes))
        rows[number].append(printed.split())
    seconds, mib = ([[float(row[column]) for row in of] for of in rows] for column in (4, 6))
    return [(f"judge and report of {nodes} x 8, CPU s", seconds), ("the same, MiB", mib)]


def loaded(builds: list[Path], runs: list[Path], verb: str) -> Row:
    counts = []
    for build, run in zip(builds, runs, strict=True):
        with tempfile.TemporaryDirectory(prefix="bringup-ratios-") as folder:
            counts.append([float(started(build, "-c", LOADED, verb, str(shutil.copytree(run, f"{folder}/run"))))])
    return f"lines loaded to {verb} one", counts


if __name__ == "__main__":
    main()
