"""NVML as a probe asks it: the real pynvml, on the library that stands in for the driver's on simulated nodes.

A test gives the lines of the state file (simulated/healthy.conf) in which its GPUs differ from healthy ones."""

import atexit
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import CDLL
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pynvml
import state as states

SIMULATED = Path(states.__file__).parent
GPUS = ("GPU-a", "GPU-b")
UNLIKE_A_NODES = (  # what tests/fixtures/nvidia-smi.json says of both
    *("devices=all", "gpu.memory=85899345920", "gpu.memory_used=644245094", "gpu.ecc_corrected=3"),
    *("gpu.remapped_corrected=1", "gpu0.bus=18", "gpu1.bus=18"),
    *(f"gpu{index}.{key}" for index in (0, 1) for key in (f"uuid={GPUS[index]}", "serial=1650000000000")),
)


@cache
def library_folder() -> Path:
    """Make the library as `cluster up` makes it, with every warning an error, and return its folder."""
    folder = Path(tempfile.mkdtemp(prefix="bringup with a space "))
    atexit.register(shutil.rmtree, folder)
    command = ["gcc", "-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-fvisibility=hidden"]
    soname = ["-Wl,-soname,libnvidia-ml.so.1", "-o", folder / "libnvidia-ml.so.1"]
    subprocess.run([*command, *soname, SIMULATED / "nvml.c"], check=True)
    return folder


class Driver:
    """Has the functions of pynvml. A test may set one of its own, for what the library cannot do."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def becomes(self, *changes: str) -> None:
        self._state.write_text(states.changed(self._state.read_text(), changes))

    def __getattr__(self, function: str) -> Any:
        return getattr(pynvml, function)


@contextmanager
def driver_of(*changes: str, gpus: int = 2) -> Iterator[Driver]:
    """Yield the driver of a node with so many H100, GPU-a and GPU-b, of which the state file says this besides."""
    with tempfile.TemporaryDirectory() as folder:
        state = Path(folder) / "state.conf"
        healthy = states.healthy("h100", "n0", 2)
        state.write_text(states.changed(healthy, [*UNLIKE_A_NODES, f"gpus={gpus}", *changes]))
        library = CDLL(str(library_folder() / "libnvidia-ml.so.1"))
        with (
            mock.patch.dict(os.environ, BRINGUP_SIMULATED_STATE=str(state)),
            mock.patch.multiple(pynvml, nvmlLib=library, _nvmlGetFunctionPointer_cache={}),
        ):
            pynvml.nvmlInit()
            yield Driver(state)
