"""The names that torch.cuda takes from torch._C: those of the CUDA build (surface.json), over the native part.

What the stand-in has not is there all the same and refuses, so that a caller sees a name that exists, as with a GPU.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from cuda_stand_in import node
from cuda_stand_in.node import Gpu

SURFACE = Path(__file__).parent / "surface.json"
COMPILED = 13000  # of CUDA, as cudaRuntimeGetVersion gives it
NCCL = (2, 29, 7)
ARCHITECTURES = "sm_75 sm_80 sm_86 sm_90 sm_100 sm_120"


def put(native: Any, gpus: Sequence[Gpu]) -> None:
    """Before torch.cuda is imported."""
    import torch._C as C

    C._has_cuda = True
    started: list[bool] = []
    for name, function in _functions(native, gpus, started).items():
        setattr(C, f"_cuda_{name}", function)
    C._cuda_init = lambda: _start(native, gpus, started)
    major, minor, patch = NCCL
    C._nccl_version = lambda: major << 32 | minor << 16 | patch
    C._nccl_version_suffix = lambda: b""
    C._cudart = _cudart(native)
    C._CudaDeviceProperties = _DeviceProperties
    C._CudaStreamBase = _stream(C.Stream, native)
    C._CudaEventBase = _event(C.Event, native)
    refuse_the_rest(C, "torch._C")


def refuse_the_rest(module: ModuleType, key: str) -> None:
    """Of surface.json's names under this key."""
    for name, kind in json.loads(SURFACE.read_text())["names"][key].items():
        if not hasattr(module, name):
            setattr(module, name, _stand_in_for(name, kind))


def _stand_in_for(name: str, kind: str) -> Any:
    if kind == "module":
        return ModuleType(name)
    if kind == "type":
        return type(name, (), {"__new__": lambda cls, *args, **kwargs: _refused(name)()})
    return _refused(name)


def _refused(what: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"the stand-in for CUDA has no {what}")

    return refuse


def _start(native: Any, gpus: Sequence[Gpu], started: list[bool]) -> None:
    import torch

    if not gpus:
        raise RuntimeError(node.refusal())
    torch.cuda.default_generators = tuple(native.default_generator(index) for index in range(len(gpus)))
    properties = [_DeviceProperties(gpu) for gpu in gpus]
    torch.cuda._get_device_properties = properties.__getitem__
    started.append(True)


def _functions(native: Any, gpus: Sequence[Gpu], started: list[bool]) -> dict[str, Callable[..., Any]]:
    """By their name behind _cuda_."""
    return {
        "getDeviceCount": lambda: len(gpus),
        "isInBadFork": lambda: False,
        "hasPrimaryContext": lambda device: bool(started),
        "setDevice": lambda device: native.exchange_device(device) and None,
        "exchangeDevice": native.exchange_device,
        "maybeExchangeDevice": native.exchange_device,
        "getDevice": native.get_device,
        "synchronize": native.synchronize,
        "canDeviceAccessPeer": lambda device, peer: True,
        "getCompiledVersion": lambda: COMPILED,
        "getArchFlags": lambda: ARCHITECTURES,
        # streams
        "getCurrentStream": lambda device: (native.get_stream(device), device, 1),
        "getDefaultStream": lambda device: (0, device, 1),
        "getCurrentRawStream": native.get_stream,
        "setStream": lambda *, stream_id, device_index, device_type: native.set_stream(stream_id, device_index),
        "isCurrentStreamCapturing": lambda: False,
        "sleep": lambda cycles: None,
        "set_sync_debug_mode": lambda mode: native.set_sync_debug(int(mode)),
        "get_sync_debug_mode": native.sync_debug,
        # memory
        "getAllocatorBackend": lambda: "native",
        "memoryStats": native.memory_stats,
        "hostMemoryStats": dict,
        "resetPeakMemoryStats": native.reset_peak,
        "resetAccumulatedMemoryStats": native.reset_accumulated,
        "emptyCache": native.empty_cache,
        "setMemoryFraction": native.set_memory_fraction,
        "getMemoryFraction": native.memory_fraction,
        "memorySnapshot": lambda *args: _snapshot(native.live_blocks()),
        "record_memory_history": lambda *args: None,
        "isHistoryEnabled": lambda: False,
        "ipc_collect": lambda: None,
        # libraries
        "clearCublasWorkspaces": lambda: None,
        "set_cudnn_benchmark_limit": lambda limit: None,
        "get_cudnn_benchmark_limit": lambda: 10,
    }


def _snapshot(blocks: Sequence[tuple[int, int, int]]) -> dict[str, Any]:
    """blocks: (address, bytes, device) of what is allocated. Each is a segment of its own."""
    segments = [
        {
            "device": device,
            "address": address,
            "total_size": size,
            "allocated_size": size,
            "active_size": size,
            "blocks": [{"address": address, "size": size, "requested_size": size, "state": "active_allocated"}],
        }
        for address, size, device in blocks
    ]
    return {"segments": segments, "device_traces": []}


class _DeviceProperties:
    """The names are those of the CUDA build."""

    L2_cache_size, is_integrated, is_multi_gpu_board, warp_size = 50 * 2**20, 0, 0, 32
    max_threads_per_multi_processor, max_threads_per_block, regs_per_multiprocessor = 2048, 1024, 65536
    shared_memory_per_block, shared_memory_per_block_optin, shared_memory_per_multiprocessor = 49152, 232448, 233472
    clock_rate, memory_clock_rate, memory_bus_width, pci_domain_id, pci_device_id = 1980000, 2619000, 5120, 0, 0

    def __init__(self, gpu: Gpu) -> None:
        self.name, self.uuid, self.total_memory = gpu.name, gpu.uuid, gpu.memory
        self.gcnArchName = gpu.name
        self.pci_bus_id = gpu.bus
        self.major, self.minor = gpu.capability
        self.multi_processor_count = gpu.processors


def _cudart(native: Any) -> ModuleType:
    class cudaError(int):  # its name in CUDA
        success = 0

    module = ModuleType("_cudart")
    vars(module).update(
        cudaError=cudaError,
        cudaGetErrorString=lambda code: "no error" if code == 0 else f"error {int(code)}",
        cudaMemGetInfo=native.memory_info,
        cudaProfilerStart=lambda: 0,
        cudaProfilerStop=lambda: 0,
        cudaHostRegister=lambda *args: 0,
        cudaHostUnregister=lambda *args: 0,
    )
    return module


def _stream(base: Any, native: Any) -> type:
    class _CudaStreamBase(base):  # type: ignore[misc]
        def __new__(
            cls, priority: int = 0, stream_id: int = 0, device_index: int = 0, device_type: int = 0, stream_ptr: int = 0
        ) -> Any:
            if stream_ptr:
                _refused("stream of another library")()
            if device_type:
                made = super().__new__(cls, stream_id=stream_id, device_index=device_index, device_type=device_type)
            else:
                made = super().__new__(cls, device=f"cuda:{native.get_device()}", priority=priority)
            made.__dict__["_priority"] = priority
            return made

        @property
        def cuda_stream(self) -> int:
            return int(self.stream_id)

        @property
        def priority(self) -> int:
            return int(self.__dict__.get("_priority", 0))

        @staticmethod
        def priority_range() -> tuple[int, int]:
            return (0, -5)

        def is_capturing(self) -> bool:
            return False

    return _CudaStreamBase


def _event(base: Any, native: Any) -> type:
    class _CudaEventBase(base):  # type: ignore[misc]
        def __new__(
            cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False, external: bool = False
        ) -> Any:
            made = super().__new__(cls, device="cuda", enable_timing=enable_timing, blocking=blocking)
            made.__dict__["_timing"] = bool(enable_timing)
            return made

        def elapsed_time(self, end: Any) -> float:
            """Milliseconds. The refusals are torch's (c10/cuda, CUDAEvent)."""
            if not (self._timing and end._timing):
                raise RuntimeError("Both events must be created with argument 'enable_timing=True'.")
            if not (self.event_id and end.event_id):
                raise RuntimeError("Both events must be recorded before calculating elapsed time.")
            if not (self.query() and end.query()):
                raise RuntimeError("Both events must be completed before calculating elapsed time.")
            return float(native.elapsed_ms(self.event_id, end.event_id))

        def ipc_handle(self) -> bytes:
            return bytes(_refused("handle of an event for another process")())

        @property
        def cuda_event(self) -> int:
            return int(self.event_id)

    return _CudaEventBase
