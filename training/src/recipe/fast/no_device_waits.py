"""Where transformers and accelerate make the host wait for the GPU in every step, and how a training bypasses it.

In every forward pass transformers reads position ids back from the device, to find out whether several sequences share
a row ("packed" in its sense). With FlashAttention and one row at a time it does so in every layer. In our rows
positions count from 0 to the end: the documents of a row are one sequence. And accelerate's loader of a resumed
training waits for its copies, which nobody needs.

The names are private. Where the installed version lacks one, lacking() names it, and the recorded `tuning` says so.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator
from typing import Any


def _never_packed(answer: Any) -> Callable[[Any], Callable[..., Any]]:
    """Instead of a question about position ids: its answer for a row that is one sequence."""
    return lambda question: lambda *args, **kwargs: answer


def _copies_as_before(skip: Callable[..., Any]) -> Callable[..., Any]:
    """accelerate's skip_first_batches makes a new loader, which waits for its copies even if the given one does not."""

    @functools.wraps(skip)
    def skip_and_keep(loader: Any, *args: Any, **kwargs: Any) -> Any:
        shortened = skip(loader, *args, **kwargs)
        if hasattr(loader, "_non_blocking"):
            shortened._non_blocking = loader._non_blocking
        return shortened

    return skip_and_keep


REPLACED: tuple[tuple[str, str, Callable[[Any], Any]], ...] = (
    ("transformers.masking_utils", "find_packed_sequence_indices", _never_packed(None)),
    ("transformers.modeling_flash_attention_utils", "_is_packed_sequence", _never_packed(False)),
    ("transformers.trainer", "skip_first_batches", _copies_as_before),
)


def lacking() -> list[str]:
    """Name what the installed libraries lack, so that its wait stays."""
    return [f"{module}.{name}" for module, name, _ in REPLACED if not hasattr(importlib.import_module(module), name)]


@contextlib.contextmanager
def without_waits() -> Iterator[None]:
    """Remove these waits inside. For models that are given rows of one sequence each, without position ids."""
    with contextlib.ExitStack() as undo:
        for module_name, name, replacement in REPLACED:
            module = importlib.import_module(module_name)
            if hasattr(module, name):
                original = getattr(module, name)
                undo.callback(setattr, module, name, original)
                setattr(module, name, replacement(original))
        yield
