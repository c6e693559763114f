"""fio, where it is installed: one file written and synced, or dropped from this node's cache and read, in blocks of 1
MiB.

Bounded: so many bytes, or LIMIT_S. The same two quantities as plain I/O gives, and the time of the slowest blocks
besides.
"""

import json
import math
import os
import re
import shutil
import subprocess

from tools import ran

LIMIT_S = 60  # of I/O; fio stops then, and its figure is that of what it did until then
PATIENCE_S = 60  # beyond that, for the sync at the end
OLD = re.compile(r'"fio version" : "(fio-[12]\.[\w.-]{1,20})"')


class NoFigure(ValueError):
    """fio gave no figure. One line: why."""


def path():
    """Where it is; None where it is not installed."""
    return shutil.which("fio")


def command(file, direction, mib, rate_mib=None, direct=False):
    """For a run in the folder of `file`: fio takes colons in a path for separators."""
    options = [f"--size={mib}M", "--end_fsync=1"] if direction == "write" else ["--invalidate=1"]
    options += ["--direct=1"] if direct else []
    slowed = [] if rate_mib is None else [f"--rate={rate_mib}m"]
    what = ["fio", f"--name={direction}", f"--rw={direction}", f"--filename={file.name}", "--bs=1M"]
    how = ["--ioengine=psync", "--thread", "--fallocate=none", f"--runtime={LIMIT_S}", "--output-format=json"]
    return [*what, *how, *options, *slowed]


def run(file, direction, mib, rate_mib=None, direct=False):
    """(GB/s, MiB moved, by what in words). The JSON is kept beside the file. Raises NoFigure."""
    try:
        words, folder = command(file, direction, mib, rate_mib, direct), str(file.parent)
        done = ran(words, LIMIT_S + PATIENCE_S, cwd=folder, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoFigure(f"fio: {error}") from error
    file.with_suffix(f".{direction}.fio.json").write_text(done.stdout)
    return figures(done.stdout, direction, (done.stderr.strip() or f"fio ended with {done.returncode}").splitlines()[0])


def figures(text, direction, notes=""):
    """The figures in fio's JSON (documentation of fio, JSON output) behind its notes. `notes`: its other output."""
    try:
        record = json.JSONDecoder().raw_decode(text, text.index("{\n"))[0]
        job = record["jobs"][0]
        done, error, version = job[direction], int(job["error"]), str(record["fio version"])
        speed, moved = done["bw_bytes"] / 1e9, round(done["io_bytes"] / 2**20)
        slowest = done["clat_ns"].get("percentile", {}).get("99.000000")
        blocks = "" if slowest is None else f", 99 of 100 blocks within {float(slowest) / 1e6:.3g} ms"
        why = os.strerror(error)
        if not math.isfinite(speed):
            raise ValueError(f"{speed} GB/s")
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as problem:
        old = OLD.search(text)  # other units, and no bytes per second
        why = f"{old[1]}, 3.0 or later is needed" if old else type(problem).__name__
        raise NoFigure(f"fio's output cannot be read ({why}); {notes or 'it said nothing'}") from problem
    if error:
        raise NoFigure(f"fio: {why}")
    if speed <= 0:
        raise NoFigure(f"fio moved {moved} MiB, too little to be timed; {notes}")
    return round(speed, 4), moved, f"{version}{blocks}"
