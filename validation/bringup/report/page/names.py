"""Many names in few words."""

from __future__ import annotations

from collections.abc import Sequence

MAX_NAMED = 6


def shortened(names: Sequence[str]) -> str:
    """`n0, n1, … n1023 (1024)`."""
    if len(names) <= 2 * MAX_NAMED:
        return ", ".join(names)
    return f"{', '.join(names[:MAX_NAMED])}, … {names[-1]} ({len(names)})"
