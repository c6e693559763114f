"""The IMEX domain of the node, in which GPUs of several nodes share memory over NVLink, as its own tool says."""

import re
import shutil
import subprocess
from pathlib import Path

from tools import ran

LIMIT_S = 20
CHANNELS = Path("/dev/nvidia-caps-imex-channels")
NONE = "no IMEX"
_STATE = re.compile(r"^Domain State: (\w+)", re.M)
_NODE = re.compile(r"^Node #\d+ +- (\S+) +- (\w+)", re.M)


def imex(facts):
    """discovery.imex: the tool's word (UP, DEGRADED, DOWN), `not running`, or that there is none."""
    if shutil.which("nvidia-imex-ctl") is None:  # exec says "Permission denied" where a folder of the PATH is closed
        facts.saw("discovery.imex", NONE, "text", remark="nvidia-imex-ctl is not installed")
        return
    try:
        done = ran(["nvidia-imex-ctl", "-N"], LIMIT_S, stderr=subprocess.STDOUT)
    except (OSError, subprocess.TimeoutExpired) as error:
        facts.unknown("discovery.imex", "text", f"nvidia-imex-ctl: {error}")
        return
    state = _STATE.search(done.stdout)
    if state:
        away = [f"{address} {word}" for address, word in _NODE.findall(done.stdout) if word != "READY"]
        facts.saw("discovery.imex", state.group(1), "text", remark="; ".join(away[:8]) or None)
    elif CHANNELS.exists():
        first = done.stdout.strip().split("\n")[0][:200]
        facts.saw("discovery.imex", "not running", "text", remark=first or None)
    else:
        facts.saw("discovery.imex", NONE, "text", remark=f"nvidia-imex-ctl is installed; no {CHANNELS}")
