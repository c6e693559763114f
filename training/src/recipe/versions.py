"""The oldest torch, transformers and accelerate that the recipe works with. In a container they are the image's.

Asked before they are imported: another transformers ends in an ImportError that says nothing of versions.
"""

from __future__ import annotations

import importlib.metadata
import re

LEAST = {
    "torch": ((2, 10), "older ones sum gradients instead of averaging them (2.7, 2.8) or report a wrong norm (2.9)"),
    "transformers": ((5, 23), "the recipe overrides parts of its Trainer, and was written against 5.23"),
    "accelerate": ((1, 12), "older ones have no ParallelismConfig"),
}


def lacking() -> str | None:
    """Say in one line what is older than it has to be; None: nothing is."""
    wrong = []
    for name, (least, why) in LEAST.items():
        try:
            installed = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            installed = "none"
        if tuple(int(part) for part in re.findall(r"\d+", installed)[:2]) < least:
            wrong.append(f"{name} {'.'.join(map(str, least))} or newer, observed {installed} ({why})")
    if not wrong:
        return None
    return f"expected {'; '.join(wrong)}: run `make venv`, or install them in the image"
