"""The files of validation/known_faults/."""

from pathlib import Path
from typing import Any

from bringup.kernel.plan import profile_text
from bringup.kernel.records import Record

_FOLDER = Path(__file__).resolve().parents[3] / "known_faults"


def entries(name: str) -> dict[str, Any]:
    """Read a file of validation/known_faults/. Raises FileError."""
    path = _FOLDER / f"{name}.yaml"
    return profile_text.read(path.read_text(encoding="utf-8"), str(path), "a file of known faults")


class Sourced(Record):
    source: str  # where the facts of a file are from
    date: str  # when they were read there
