"""Which lines of the programs ran: Python runs this file at its start when its folder is first on PYTHONPATH.

    PYTHONPATH=tests/cuda/recording BRINGUP_LINES=FOLDER COMMAND

Each process appends FILE:LINE to a file of its own in FOLDER when a line of training/ or of the probes runs for the
first time, so that what ends hard is kept, too. Any Python of a job may run this file, also that of the system (3.6 or
newer).
"""

import os
import sys
import threading
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
FOLDERS = (f"{ROOT}/training/", f"{ROOT}/infrastructure-validation/probes/")


def start(folder):
    folder.mkdir(parents=True, exist_ok=True)
    out = (folder / f"{os.uname()[1]}.{os.getpid()}.lines").open("a", buffering=1)
    seen, ours = set(), {}

    def line_ran(frame, event, argument):
        if event == "line":
            at = f"{ours[frame.f_code.co_filename]}:{frame.f_lineno}\n"
            if at not in seen:
                seen.add(at)
                out.write(at)
        return line_ran

    def call(frame, event, argument):
        file = frame.f_code.co_filename
        if file not in ours:
            path = os.path.abspath(file)  # noqa: PTH100  # pathlib calls functions of its own, which would be traced
            ours[file] = path[len(str(ROOT)) + 1 :] if path.startswith(FOLDERS) else None
        return line_ran if ours[file] else None

    threading.settrace(call)
    sys.settrace(call)


def run_the_next():
    """Only the first file of this name is run by Python: training/injected has one, too."""
    for folder in map(Path, sys.path):
        file = folder / "sitecustomize.py"
        if folder.resolve() != HERE and file.exists():
            exec(compile(file.read_bytes(), str(file), "exec"), {"__name__": "sitecustomize", "__file__": str(file)})
            return


if os.environ.get("BRINGUP_LINES"):
    start(Path(os.environ["BRINGUP_LINES"]))
run_the_next()
