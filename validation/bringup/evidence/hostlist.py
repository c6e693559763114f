"""Slurm's short form of node lists: `n[0-3,7],login` and back to names."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bringup.errors import UsageError

_PART = re.compile(r"(?P<prefix>[^\[\],]+)?(?:\[(?P<ranges>[^\]]*)\])?(?P<suffix>[^\[\],]*)")
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)")  # the last number of a name
MAX_NODES = 100_000
FEW = 4  # names that need no short form


def expand(text: str) -> list[str]:
    """`n[08-10],m1` -> [n08, n09, n10, m1], in order. Raises UsageError for anything that is not a node list."""
    names: list[str] = []
    for part in _split(text):
        match = _PART.fullmatch(part)
        if match is None or not match["prefix"]:
            raise UsageError(f"{part!r} is not a Slurm node list")
        if match["ranges"] is None:
            names.append(part)
        else:
            names += [f"{match['prefix']}{number}{match['suffix']}" for number in _numbers(match["ranges"], part)]
        if len(names) > MAX_NODES:
            raise UsageError(f"{text[:40]!r} names more than {MAX_NODES} nodes")
    bad = [name for name in names if not _NAME.fullmatch(name)]
    if bad or not names:
        raise UsageError(f"{bad[0] if bad else text!r} is not a node name")
    if len(set(names)) != len(names):
        raise UsageError(f"{text!r} names a node twice")
    return names


def shortened(names: Sequence[str]) -> str:
    """The inverse: [n08, n09, n10, m1] -> `n[08-10],m1`. A few names stay as they are. The order may change."""
    if len(names) <= FEW:
        return ",".join(names)
    groups: dict[tuple[str, int, str], list[int]] = {}
    for name in names:
        match = _NUMBERED.fullmatch(name)
        prefix, digits, suffix = (match[1], match[2], match[3]) if match else (name, "", "")
        groups.setdefault((prefix, len(digits), suffix), []).append(int(digits or -1))
    parts = []
    for (prefix, width, suffix), numbers in groups.items():
        texts = [f"{number:0{width}d}" for number in sorted(set(numbers))] if width else []
        parts.append(prefix if not texts else f"{prefix}{_in_brackets(texts)}{suffix}")
    return ",".join(parts)


def _in_brackets(numbers: Sequence[str]) -> str:
    """[08, 09, 10, 12] -> `[08-10,12]`; a single number stays without brackets."""
    if len(numbers) == 1:
        return numbers[0]
    runs: list[list[str]] = []
    for number in numbers:
        if runs and int(number) == int(runs[-1][-1]) + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return f"[{','.join(run[0] if len(run) == 1 else f'{run[0]}-{run[-1]}' for run in runs)}]"


def is_name(text: str) -> bool:
    """Whether it can be the name of a single node."""
    return _NAME.fullmatch(text) is not None


def named(text: str) -> list[str]:
    """The nodes that a message of Slurm names. Text that is not a node list is returned unchanged."""
    try:
        return expand(text)
    except UsageError:
        return [text]


def _split(text: str) -> list[str]:
    """Split at commas outside brackets."""
    return [part for part in re.split(r",(?![^\[]*\])", text.strip()) if part]


def _numbers(ranges: str, part: str) -> list[str]:
    numbers: list[str] = []
    for piece in ranges.split(","):
        match = re.fullmatch(r"(\d{1,18})(?:-(\d{1,18}))?", piece)
        if match is None:
            raise UsageError(f"{part!r} is not a Slurm node list")
        first, last = match[1], match[2] or match[1]
        if not 0 <= int(last) - int(first) < MAX_NODES:
            raise UsageError(f"{part!r}: the range {piece} is empty or too long")
        numbers += [f"{number:0{len(first)}d}" for number in range(int(first), int(last) + 1)]
    return numbers
