"""Programs that a probe starts. Python 3.6 has neither `capture_output` nor `text`."""

import subprocess


def ran(command, limit_s=None, **options):
    """A program that has ended, with any exit code, and what it wrote. Raises OSError, and TimeoutExpired."""
    own = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "universal_newlines": True, "errors": "replace"}
    return subprocess.run(command, timeout=limit_s, **dict(own, **options))
