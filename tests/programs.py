"""Programs that a test starts."""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def ran(command: Sequence[str | Path], *, timeout: float = 300, **how: Any) -> subprocess.CompletedProcess[str]:
    """A program that has ended, with any exit code, and what it wrote. how: of subprocess.run."""
    return subprocess.run(command, **{"capture_output": True, "text": True, "check": False, "timeout": timeout} | how)
