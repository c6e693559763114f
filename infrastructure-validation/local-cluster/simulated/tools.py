"""What the stand-ins of programs share: the state of the node they run on.

The state file has a `key=value` a line; of several lines with one key the last one counts. A key that is not there
means health. Standard library only; no stand-in imports anything of the product.
"""

import os
from pathlib import Path

FILE = "/run/bringup-simulated/state.conf"


def state():
    """{key: value}; empty where there is no file."""
    try:
        text = Path(os.environ.get("BRINGUP_SIMULATED_STATE") or FILE).read_text()
    except OSError:
        return {}
    lines = (line.strip() for line in text.splitlines())
    return dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
