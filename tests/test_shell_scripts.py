"""Shell scripts where no cluster is: what they refuse, in one line and with exit code 2."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SETUP = ROOT / "infrastructure-validation/local-cluster/setup.sh"


@pytest.mark.parametrize("lacking", [None, "shellcheck", "faketime"])
def test_setup_looks_for_the_commands_where_there_is_no_dpkg(tmp_path: Path, lacking: str | None) -> None:
    """A system without apt-get and dpkg (Rocky): what was installed by hand is enough."""
    commands = ("slurmctld", "slurmd", "sinfo", "munged", "ip", "nft", "unshare", "flock", "shellcheck", "faketime")
    for name in commands:
        if name != lacking:
            (tmp_path / name).touch(mode=0o755)
    done = subprocess.run(
        [shutil.which("bash") or "/bin/bash", SETUP],
        env={**os.environ, "PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    if lacking is None:
        assert (done.returncode, done.stderr) == (0, "")
    else:
        assert done.returncode == 2
        assert done.stderr.startswith(f"setup: not found: {lacking}; ")
        assert done.stderr.count("\n") == 1
