"""Programs that a test starts."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def ran(command: Sequence[str | Path], *, timeout: float = 300, **how: Any) -> subprocess.CompletedProcess[str]:
    """A program that has ended, with any exit code, and what it wrote. how: of subprocess.run."""
    return subprocess.run(command, **{"capture_output": True, "text": True, "check": False, "timeout": timeout} | how)


def program(path: Path, body: str, by: str = "/bin/bash") -> Path:
    """Write a program of the test's own. by: what runs it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{by}\n{body}\n")
    path.chmod(0o755)
    return path


def tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a folder; a text gets a line feed at its end, as the kernel's have."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    return root
