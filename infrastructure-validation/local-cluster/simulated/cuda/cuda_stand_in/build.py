"""Compiles native/ against the headers of an installed torch, once for each torch, Python and state of the sources.

    PYTHON build.py         prints the path of the library, after it was built where that was needed

PYTHON is the one that torch is installed for. The library is kept in the user's cache folder. Several that build at the
same time wait for the first.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

NATIVE = Path(__file__).resolve().parent / "native"
NAME = "_cuda_stand_in"
LIBRARIES = ("c10", "torch_cpu", "torch", "torch_python")
FLAGS = ("-std=c++20", "-O1", "-g0", "-fPIC", "-w", "-shared", "-fmax-errors=5")
DEFINED = (f"-DTORCH_EXTENSION_NAME={NAME}", "-DTORCH_API_INCLUDE_EXTENSION_H", "-DUSE_C10D_GLOO=1")


class BuildError(Exception):
    """The library cannot be made; one line for the user."""


def cache() -> Path:
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bringup"


def library() -> Path:
    """Raises BuildError."""
    torch = _torch()
    folder = cache() / f"cuda-stand-in-{importlib.metadata.version('torch')}-{_digest()}"
    made = folder / f"{NAME}.so"
    if made.exists():
        return made
    headers = Path(sysconfig.get_path("include"))
    if not (headers / "Python.h").exists():
        raise BuildError(f"no headers of Python in {headers}, for the stand-in of CUDA; install them (python3-dev)")
    if shutil.which("g++") is None:
        raise BuildError("not installed: g++, for the stand-in of CUDA; run 'make setup'")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _compile(torch, made)
    return made


def _torch() -> Path:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise BuildError(f"{sys.executable} has no torch; run 'make setup'")
    if (Path(spec.origin).parent / "lib/libtorch_cuda.so").exists():
        raise BuildError("the stand-in of CUDA wants torch's CPU build, and this is a CUDA build (README: TORCH_INDEX)")
    return Path(spec.origin).parent


def _digest() -> str:
    """Of all that the library depends on, beside torch's version."""
    hashed = hashlib.sha256(sys.version.encode())
    for part in (*FLAGS, *DEFINED):
        hashed.update(part.encode())
    for source in sorted(NATIVE.iterdir()):
        hashed.update(source.name.encode() + source.read_bytes())
    return hashed.hexdigest()[:16]


def _compile(torch: Path, made: Path) -> None:
    headers = [torch / "include", torch / "include/torch/csrc/api/include", sysconfig.get_path("include")]
    with tempfile.TemporaryDirectory(dir=made.parent) as folder:
        part = Path(folder) / made.name
        command = ["g++", *FLAGS, *DEFINED, *(word for path in headers for word in ("-isystem", str(path)))]
        command += [str(NATIVE / "module.cpp"), "-o", str(part), f"-L{torch / 'lib'}", f"-Wl,-rpath,{torch / 'lib'}"]
        done = subprocess.run(
            [*command, *(f"-l{name}" for name in LIBRARIES)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            first = next((line for line in done.stderr.splitlines() if "error" in line), done.stderr.strip()[-200:])
            raise BuildError(f"g++ cannot make the stand-in of CUDA: {first}")
        part.replace(made)


if __name__ == "__main__":
    try:
        print(library())
    except BuildError as error:
        sys.exit(f"cluster: {error}")
