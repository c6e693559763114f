"""The GPUs of this node that a program may use, from the node's state file: as driver and CUDA would choose them."""

from __future__ import annotations

import importlib.util
import os
import uuid
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

_FILE = Path(__file__).resolve().parents[2] / "state.py"


def _load(file: Path) -> ModuleType:
    """Not by its name on sys.path: a folder with a state.py there would be found by every program."""
    spec = importlib.util.spec_from_file_location("bringup_simulated_state", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


states: Any = _load(_FILE)
STATE_FILE: Path = states.FILE


@dataclass(frozen=True)
class Gpu:
    index: int
    """Among those that the driver lists."""
    uuid: uuid.UUID
    name: str
    bus: int
    memory: int
    """Bytes that CUDA gives to programs: few, because they are the machine's own."""
    capability: tuple[int, int]
    processors: int


def _state() -> Any:
    return states.State.read(STATE_FILE)


ERRORS = {  # cudaError_t (CUDA Runtime API, data types), in CUDA's words
    "802": "system not yet initialized",
    "803": "system has unsupported display driver / cuda driver combination",
    "804": "forward compatibility was attempted on non supported HW",
    "999": "unknown error",
}


def refusal() -> str:
    """torch's words where CUDA gives no GPU."""
    word, _, number = str(_state().first("cuda.init")).partition(":")
    if word != "error":
        return "No CUDA GPUs are available"
    return (
        "Unexpected error from cudaGetDeviceCount(). Did you run some cuda functions before calling NumCudaDevices() "
        f"that might have already set an error? Error {number}: {ERRORS.get(number, 'unrecognized error code')}"
    )


def visible_gpus() -> list[Gpu]:
    """In CUDA's order. None where CUDA does not start; without those that are lost."""
    state = _state()
    if state.first("init") != "ok" or state.first("cuda.init") != "ok":
        return []
    openable = [_gpu(state, index) for index in state.gpus if state.gpu(index, "lost") == "0"]
    return chosen(openable, os.environ.get("CUDA_VISIBLE_DEVICES"))


def chosen(gpus: list[Gpu], wanted: str | None) -> list[Gpu]:
    """CUDA_VISIBLE_DEVICES: numbers among what can be opened, or the beginning of a UUID. What no GPU has hides itself
    and all that follow (CUDA C++ Programming Guide, environment variables)."""
    if wanted is None:
        return gpus
    visible: list[Gpu] = []
    for word in (part.strip() for part in wanted.split(",")):
        if word.isdigit():
            match = gpus[int(word) : int(word) + 1]
        else:
            match = [gpu for gpu in gpus if word.startswith("GPU-") and f"GPU-{gpu.uuid}".startswith(word)]
        if len(match) != 1 or match[0] in visible:
            break
        visible += match
    return visible


def _gpu(state: Any, index: int) -> Gpu:
    major, minor = state.gpu(index, "cuda.capability").split(".")
    return Gpu(
        index=index,
        uuid=uuid.UUID(state.gpu(index, "uuid").removeprefix("GPU-")),
        name=state.gpu(index, "name"),
        bus=int(state.gpu(index, "bus"), 16),
        memory=cuda_memory(),
        capability=(int(major), int(minor)),
        processors=int(state.gpu(index, "cuda.processors")),
    )


def cuda_memory() -> int:
    return int(_state().first("gpu.cuda.memory"))


def lag_s() -> float:
    return float(_state().first("cuda.lag_ms")) / 1000
