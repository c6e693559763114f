"""Puts the stand-in in its places while torch is imported. Each has one moment: later, torch has looked already."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

CUDA_VERSION = "13.0"  # of the CUDA build of the torch that is pinned


def install(library: str) -> None:
    sys.meta_path.insert(0, _Hooks(library))


class _Hooks(MetaPathFinder):
    def __init__(self, library: str) -> None:
        self._library = library
        self._before: dict[str, Callable[[], None]] = {
            "torch.cuda": self._cuda,
            "torch.distributed.distributed_c10d": self._group,
        }
        self._after: dict[str, Callable[[ModuleType], None]] = {"torch": self._torch, "torch.version": self._version}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name == "torch._C" and path is not None:
            self._load_libraries(f"{path[0]}/lib")
        before, after = self._before.get(name), self._after.get(name)
        if before is None and after is None:
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def between(module: ModuleType) -> None:
            if before is not None:
                before()
            execute(module)
            if after is not None:
                after(module)

        spec.loader.exec_module = between  # type: ignore[method-assign]
        return spec

    def _load_libraries(self, folder: str) -> None:
        """Before torch._C starts: it asks for the hooks of CUDA once."""
        import ctypes  # here, because most Pythons of a node never import torch

        from cuda_stand_in.build import LIBRARIES

        for name in LIBRARIES:
            ctypes.CDLL(f"{folder}/lib{name}.so")
        ctypes.CDLL(self._library)

    def _native(self) -> Any:
        import importlib.util

        from cuda_stand_in.build import NAME

        if NAME not in sys.modules:
            spec = importlib.util.spec_from_loader(NAME, ExtensionFileLoader(NAME, self._library))
            assert spec is not None and spec.loader is not None
            module = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            sys.modules[NAME] = module
        return sys.modules[NAME]

    def _version(self, module: ModuleType) -> None:
        module.cuda = CUDA_VERSION  # type: ignore[attr-defined]

    def _cuda(self) -> None:
        from cuda_stand_in import names, node

        native = self._native()
        gpus = node.visible_gpus()
        native.begin(str(node.STATE_FILE), [gpu.index for gpu in gpus], node.cuda_memory(), node.lag_s())
        names.put(native, gpus)

    def _group(self) -> None:
        from cuda_stand_in import group

        group.put(self._native())

    def _torch(self, torch: ModuleType) -> None:
        """UntypedStorage is a class of C, whose resize_ knows no other device than the CPU and CUDA's own library."""
        native, of_host = self._native(), torch.UntypedStorage.resize_

        def resize_(self: Any, size: int) -> Any:
            if self.device.type != "cuda":
                return of_host(self, size)
            native.resize_storage(torch.empty(0, dtype=torch.uint8, device=self.device).set_(self), int(size))
            return self

        torch.UntypedStorage.resize_ = resize_
