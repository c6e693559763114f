"""Slurm's short form of node lists: `n[0-3,7],rack[0-1]-[00-31],login` and back to names."""

import itertools
import math
import re
from collections.abc import Collection, Sequence

from bringup.kernel.errors import UsageError

_PART = re.compile(r"[^\[\],]*(\[[^\[\]]*\][^\[\],]*)*")
_GLUED = re.compile(r"[\d\]]\[|\][\d\[]")  # numbers beside numbers
_PIECE = re.compile(r"\[([^\]]*)\]|([^\[]+)")  # ranges, or text
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?")
_ENDS_WITH_NUMBER = re.compile(r"(.*?)([0-9]{1,18})")
_LAST_NUMBER = re.compile(r"(.*?)([0-9]{1,18})([^0-9]*)")
MAX_NODES = 100_000
FEW = 4  # names that need no short form


def expand(text: str) -> list[str]:
    """Expand `n[08-10],m1` -> [n08, n09, n10, m1], in order, each once. Raises UsageError if it is not a node list."""
    names: list[str] = []
    for part in filter(None, re.split(r",(?![^\[]*\])\s*", text.strip())):  # at commas outside brackets
        if _PART.fullmatch(part) is None:
            raise UsageError(f"{part!r} is not a Slurm node list")
        pieces = [[words] if words else _numbers(ranges, part) for ranges, words in _PIECE.findall(part)]
        is_uneven = any(len({*map(len, piece)}) > 1 for piece in pieces)
        if is_uneven and _GLUED.search(part) and not part.endswith("]"):
            raise UsageError(f"{part!r} can be read in several ways: Slurm takes no text behind the last bracket")
        if len(names) + math.prod(map(len, pieces)) > MAX_NODES:
            raise UsageError(f"{text[:40]!r} names more than {MAX_NODES} nodes")
        names += map("".join, itertools.product(*pieces))
    bad = [name for name in names if not _NAME.fullmatch(name)]
    if bad or not names:
        raise UsageError(f"{bad[0] if bad else text!r} is not a node name")
    return list(dict.fromkeys(names))


def shortened(names: Sequence[str]) -> str:
    """Shorten [n08, n09, n10, m1] -> `n[08-10],m1`. A few names stay as they are. The order may change.

    Slurm takes several brackets in a name, and one of them has to be its end (slurm.conf(5), NodeName): it refuses
    `gpu[1-5]-ib` as an invalid node list. So numbers inside of a name get brackets only where its end has them.
    """
    if len(names) <= FEW:
        return ",".join(names)
    numbers: dict[tuple[str, int], set[int]] = {}
    for name in names:
        match = _ENDS_WITH_NUMBER.fullmatch(name)
        prefix, digits = (match[1], match[2]) if match else (name, "")
        numbers.setdefault((prefix, len(digits)), set()).add(int(digits or -1))
    ends = [(prefix, _in_brackets(values, width) if width else "") for (prefix, width), values in numbers.items()]
    inner: dict[tuple[str, int, str], set[int]] = {}
    for prefix, end in ends:
        match = _LAST_NUMBER.fullmatch(prefix) if end.endswith("]") else None
        start, digits, between = (match[1], match[2], match[3]) if match else (prefix, "", "")
        inner.setdefault((start, len(digits), between + end), set()).add(int(digits or -1))
    return ",".join(
        f"{start}{_in_brackets(values, width) if width else ''}{end}" for (start, width, end), values in inner.items()
    )


def _in_brackets(numbers: Collection[int], width: int) -> str:
    """Write {8, 9, 10, 12}, 2 -> `[08-10,12]`; a single number stays without brackets."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    texts = [f"{run[0]:0{width}d}" + (f"-{run[-1]:0{width}d}" if len(run) > 1 else "") for run in runs]
    return texts[0] if len(numbers) == 1 else f"[{','.join(texts)}]"


def is_name(text: str) -> bool:
    """Say whether it can be the name of a single node."""
    return _NAME.fullmatch(text) is not None


def named(text: str) -> list[str]:
    """Return the nodes that a message of Slurm names. Text that is not a node list is returned unchanged."""
    try:
        return expand(text)
    except UsageError:
        return [text]


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
