"""The random number generators of a training, as tensors: Python's, numpy's, torch's on the CPU and on this GPU."""

from __future__ import annotations

import random
import sys

import torch

from recipe import group


def get() -> dict[str, torch.Tensor]:
    version, words, gauss = random.getstate()
    states = {
        "python": torch.tensor([version, *words], dtype=torch.int64),
        "python_gauss": torch.tensor([] if gauss is None else [gauss], dtype=torch.float64),
        "torch": torch.get_rng_state(),
    }
    if "numpy" in sys.modules:
        import numpy

        _, key, *rest = numpy.random.get_state(legacy=True)  # the global one: others draw from it
        states["numpy"] = torch.tensor([*key.tolist(), *rest[:2]], dtype=torch.int64)
        states["numpy_gauss"] = torch.tensor([rest[2]], dtype=torch.float64)
    if group.CUDA:
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def put(states: dict[str, torch.Tensor]) -> None:
    version, *words = states["python"].tolist()
    gauss = states["python_gauss"].tolist()
    random.setstate((version, tuple(words), gauss[0] if gauss else None))
    torch.set_rng_state(states["torch"])
    if "numpy" in states:
        import numpy

        *key, position, has_gauss = states["numpy"].tolist()
        numpy.random.set_state(
            ("MT19937", numpy.array(key, dtype="uint32"), position, has_gauss, states["numpy_gauss"].item())
        )
    if group.CUDA and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"])


def seed(value: int) -> None:
    random.seed(value)
    torch.manual_seed(value)
    if "numpy" in sys.modules:
        import numpy

        numpy.random.seed(value)
