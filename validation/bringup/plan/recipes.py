"""The parts of `--recipe fast` (training/src/recipe/fast.py), in the order in which a stack adds them."""

from __future__ import annotations

PARTS = ("compile", "cross-entropy", "residual", "attention", "selective", "prefetch", "host")
