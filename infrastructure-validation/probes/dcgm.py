#!/usr/bin/env python3
"""What NVIDIA's own diagnostic says of the GPUs of this node: `dcgmi diag -r LEVEL -j`. Its answer goes to RUN_DIR/raw.

Levels, and about how long 8 GPUs take: 1 (seconds) looks at drivers and settings; 2 (2 to 10 minutes) tests memory and
PCIe; 3 (half an hour) stresses; 4 (hours) tests memory with patterns.
Proves: only that the program was there and ended by itself. What it found is read from its answer (readers/dcgm.py).
Run: srun --label --ntasks-per-node=1 --gpus-per-node=8 python3 dcgm.py LEVEL SECONDS
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from facts import Facts

LEVELS = ("1", "2", "3", "4")
GRACE_S = 20  # dcgmi stops what it has started when it gets SIGTERM


def main():
    if len(sys.argv) != 3 or sys.argv[1] not in LEVELS or not sys.argv[2].isdigit():
        sys.exit("usage: dcgm.py 1|2|3|4 SECONDS")
    facts = Facts("dcgm")
    raw = Path(os.environ["RUN_DIR"]) / "raw" if os.environ.get("RUN_DIR") else None
    diagnose(facts, sys.argv[1], int(sys.argv[2]), raw)
    facts.finish()


def diagnose(facts, level, limit_s, raw):
    """dcgm.ended: whether there is an answer that can be read; its exit code is that of what it found."""
    command = ["dcgmi", "diag", "-r", level, "-j"]
    try:
        program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, universal_newlines=True)
    except OSError as error:
        missing = shutil.which(command[0]) is None
        why = "dcgmi is not installed" if missing else f"dcgmi cannot be started: {error.strerror}"
        facts.unknown("dcgm.ended", "flag", why)
        return
    answer, complaint, late = finished(program, limit_s)
    last_line = (complaint.strip() or answer.strip() or "nothing").splitlines()[-1]
    if late:
        facts.unknown("dcgm.ended", "flag", f"{' '.join(command)} did not end in {limit_s} s")
    elif not answer.strip().startswith("{"):  # with -j it says most of its errors as JSON, and some as words
        facts.unknown(
            "dcgm.ended", "flag", f"{' '.join(command)} ended with {program.returncode} and said: {last_line}"
        )
    else:
        keep(facts, raw, answer, f"level {level}, ended with {program.returncode}")


def keep(facts, raw, answer, remark):
    try:
        if raw is not None:
            (raw / f"dcgm-{facts.at}.json").write_text(answer)
    except OSError as error:
        facts.unknown("dcgm.ended", "flag", f"the answer of dcgmi could not be kept: {error.strerror}")
        return
    facts.saw("dcgm.ended", True, "flag", remark=remark)


def finished(program, limit_s):
    """(standard output, standard error, whether it took too long)."""
    try:
        return (*program.communicate(timeout=limit_s), False)
    except subprocess.TimeoutExpired:
        program.terminate()
    try:
        return (*program.communicate(timeout=GRACE_S), True)
    except subprocess.TimeoutExpired:
        program.kill()
        return (*program.communicate(), True)


if __name__ == "__main__":
    main()
