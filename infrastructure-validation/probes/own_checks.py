#!/usr/bin/env python3
"""Runs the commands of the site's own checks on this node, one after the other (docs/site-file.md).

    own_checks.py FILE      own_checks.json of the run: a list of {"id", "unit", "command"}

The unit says how the answer is read. flag: exit code 0 is true, 1 is false, and the last line of the output is the
remark. text, or a number in any other unit: the last line of the output of a command that ends with 0. All else is
unknown, with the reason.
"""

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

from facts import Facts

PATIENCE_S = 30


def answer(command):
    """(exit code or None, last line of the output, why there is no exit code). A hung process stays."""
    process = subprocess.Popen(
        ["bash", "-o", "pipefail", "-c", command],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    try:
        output = process.communicate(timeout=PATIENCE_S)[0].decode(errors="replace").strip()
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.communicate(timeout=5)
        return None, "", f"it did not end within {PATIENCE_S} s"
    return process.returncode, output.splitlines()[-1].strip() if output else "", None


def read(unit, code, line):
    """(value, remark). Raises ValueError with the reason why there is no value."""
    if unit == "flag" and code in (0, 1):
        return code == 0, line or None
    if code != 0:
        raise ValueError(f"it ended with {code}: {line or 'no output'}")
    if unit == "text":
        if not line:
            raise ValueError("it printed nothing")
        return line, None
    number = math.nan
    with contextlib.suppress(ValueError):
        number = float(line)
    if not math.isfinite(number):
        raise ValueError(f"it printed {line!r}, expected a number")
    return int(number) if number.is_integer() and abs(number) < 2**53 else number, None


def main():
    facts = Facts("own_checks")
    for check in json.loads(Path(sys.argv[1]).read_text()):
        try:
            code, line, why = answer(check["command"])
            if why is not None:
                raise ValueError(why)
            value, remark = read(check["unit"], code, line)
        except (OSError, ValueError) as error:
            facts.unknown(check["id"], check["unit"], error)
        else:
            facts.saw(check["id"], value, check["unit"], remark=remark)
    facts.finish()


if __name__ == "__main__":
    main()
