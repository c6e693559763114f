"""Programs that a test starts, the stand-ins of those for GPUs and networks, and files that they find."""

import os
import secrets
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PROBES = ROOT / "infrastructure-validation/probes"
STAND_INS = ROOT / "infrastructure-validation/local-cluster/simulated/bin"


def ran(command: Sequence[str | Path], *, timeout: float = 300, **how: Any) -> subprocess.CompletedProcess[str]:
    """A program that has ended, with any exit code, and what it wrote. how: of subprocess.run."""
    return subprocess.run(command, **{"capture_output": True, "text": True, "check": False, "timeout": timeout} | how)


def begun(command: Sequence[str | Path], **how: Any) -> subprocess.Popen[str]:
    """A program that runs, with pipes for what it writes. how: of subprocess.Popen."""
    return subprocess.Popen(command, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True} | how)


def free_port() -> int:
    """One below those that Linux hands out by itself: nobody gets it before the program of the test has started."""
    while True:
        port = 10_000 + secrets.randbelow(10_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("", port))
            return port


def beside_a_small_disk(folder: Path, size: str) -> tuple[str, ...]:
    """Make this folder, and return the words that start a command for which it is a small filesystem. size: `4m`."""
    folder.mkdir()
    return "unshare", "-m", "bash", "-c", f'mount -t tmpfs -o size={size} tmpfs "{folder}" && exec "$0" "$@"'


def program(path: Path, body: str, by: str = "/bin/bash") -> Path:
    """Write a program of the test's own. by: what runs it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!{by}\n{body}\n")
    path.chmod(0o755)
    return path


def module_at(path: Path, name: str) -> ModuleType:
    """A file of Python, with any ending or none, as a module under a name of the test's own."""
    loader = SourceFileLoader(name, str(path))
    made = module_from_spec(spec_from_loader(name, loader))
    loader.exec_module(made)
    return made


def tree(root: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files below a folder; a text gets a line feed at its end, as the kernel's have."""
    root.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = root / name.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else f"{content}\n".encode())
    return root


def on_path(place: Path, **state: str) -> dict[str, str]:
    """The environment in which the stand-ins are found. `_` of a key is written `.`: dcgm_memory="fail:gpu3"."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "state.conf"
    file.write_text("".join(f"{key.replace('_', '.', 1)}={value}\n" for key, value in state.items()))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "BRINGUP", "NCCL"))}
    path = f"{STAND_INS}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return kept | {"PATH": path, "BRINGUP_SIMULATED_STATE": str(file)}
