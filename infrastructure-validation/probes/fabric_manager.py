"""The fabric manager of a node whose GPUs are joined by NVSwitches: its version, which must be the driver's."""

import re
import shutil
import subprocess
from pathlib import Path

from tools import ran

LIMIT_S = 20
PROGRAM = "nv-fabricmanager"
SWITCHES = Path("/dev")
NONE = "not installed"
_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")


def fabric_manager(facts):
    switches = [path for path in SWITCHES.glob("nvidia-nvswitch*") if path.name[-1].isdigit()]
    facts.saw("inventory.nvswitches", len(switches), "count")
    if shutil.which(PROGRAM) is None:
        facts.saw("inventory.fabric_manager", NONE, "text")
        return
    try:
        answer = ran([PROGRAM, "--version"], LIMIT_S, stderr=subprocess.STDOUT).stdout.strip()
    except (OSError, subprocess.TimeoutExpired) as error:
        facts.unknown("inventory.fabric_manager", "text", f"{PROGRAM}: {error}")
        return
    version = _VERSION.search(answer)  # Fabric Manager version is : 570.86.15
    facts.answered("inventory.fabric_manager", version and version[0], "text", f"{PROGRAM} says {answer[:200]!r}")
