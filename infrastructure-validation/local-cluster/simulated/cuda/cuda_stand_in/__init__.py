"""CUDA devices for the CPU build of torch, on a simulated GPU node. README.md beside this package: what it can show.

torch.cuda, torch.distributed, FSDP, accelerate and transformers stay the real ones, so that a wrong name, keyword or
device of a caller fails as it does on a GPU. Made here is what libtorch_cuda would bring: in C++ (native/), and the
names that Python takes from torch._C (names.py, group.py).

Whoever starts Python on such a node calls install(), before anything imports torch.
"""

from __future__ import annotations

import os

LINES = "BRINGUP_LINES"
"""Names a folder: every Python of a simulated node writes there which lines it executed (lines.py)."""


def install(library: str) -> None:
    """library: what build.py made. Nothing is imported until somebody imports torch."""
    from cuda_stand_in import hooks

    hooks.install(library)
    if os.environ.get(LINES):
        from cuda_stand_in import lines

        lines.record(os.environ[LINES])
