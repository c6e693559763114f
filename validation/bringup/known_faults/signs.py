"""Signatures in a run's raw files: hints at causes, with the place. They decide no verdict.

Only logs and error streams are searched. Facts, tables and job records are judged by gates.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from bringup.evidence.parsed import cut, lines
from bringup.known_faults.signature import Signature
from bringup.known_faults.signatures import IN_ORDER, SIGNATURES
from bringup.records import Run, Sign, files
from bringup.results import BATCH_LOG

_SEARCHED = {".log", ".err", ".out", ".stderr", ".txt"}
_PROVOKED = re.compile(r"(job-|bad-exit|requeue|scontrol-|isolation|cgroup\.conf|mpi-list|slurm\.conf|nvidia-smi)")
"""Files with tables, or with errors that a phase provokes on purpose (too much memory, a device that must not open)."""

_END_BYTES = 1 << 20  # of a long file only the beginning and the end are searched
_SHOWN = 200
_ROLES = ("root", "either", "consequence")
_GAP = 200  # letters between two parts of a pattern: without a limit a line that repeats the first part takes minutes


def _bounded(pattern: str) -> str:
    """The pattern with a limit for each `.*`, `\\S*`, `\\w+`."""
    return re.sub(r"(\.|\\[Sw])([*+])", lambda gap: f"{gap[1]}{{{int(gap[2] == '+')},{_GAP}}}", pattern)


_PATTERNS = [(signature, re.compile(_bounded(signature.pattern))) for signature in IN_ORDER]
_ANY = re.compile("|".join(f"(?:{pattern.pattern})" for _, pattern in _PATTERNS))
_BESIDE = {
    signature.id: re.compile(_bounded(signature.beside)) for signature in IN_ORDER if signature.beside is not None
}


def match(line: str) -> Signature | None:
    """The first signature that matches this line; None: no signature does."""
    if _ANY.search(line) is None:
        return None
    return next(signature for signature, pattern in _PATTERNS if pattern.search(line))


def in_lines(numbered_lines: Iterable[tuple[int, str]], where: str) -> list[Sign]:
    """One sign per signature: its first place and its count. numbered_lines: number and text."""
    first: dict[str, tuple[int, str]] = {}
    count: dict[str, int] = {}
    confirmed: set[str] = set()
    for number, line in numbered_lines:
        confirmed |= {name for name, pattern in _BESIDE.items() if name not in confirmed and pattern.search(line)}
        signature = match(line)
        if signature is not None:
            first.setdefault(signature.id, (number, line.strip()[:_SHOWN]))
            count[signature.id] = count.get(signature.id, 0) + 1
    return [
        Sign(signature=name, evidence=f"{where}:{number}", line=line, count=count[name])
        for name, (number, line) in first.items()
        if name not in _BESIDE or name in confirmed
    ]


def in_run(folder: Path, run: Run) -> list[Sign]:
    """Signs in raw/ of a run: one per signature, with its first file. First causes come first, consequences last.

    A file that cannot be read is skipped; the reading of evidence reports it.
    """
    signs: dict[str, Sign] = {}
    paths, _ = files.below(folder / "raw")
    for path in sorted(paths, key=lambda path: path == folder / BATCH_LOG):  # the screen may repeat a step's log
        if path.suffix not in _SEARCHED or _PROVOKED.match(path.name):
            continue
        try:
            in_file = in_lines(_lines(path, folder), path.relative_to(folder).as_posix())
        except OSError:
            continue
        for sign in in_file:
            known = signs.get(sign.signature)
            if known is None:
                signs[sign.signature] = sign
            elif path != folder / BATCH_LOG:
                signs[sign.signature] = known.model_copy(update={"count": known.count + sign.count})
    return sorted(signs.values(), key=lambda sign: _ROLES.index(SIGNATURES[sign.signature].role))


def numbered(text: str, start: int = 1) -> Iterator[tuple[int, str]]:
    """Numbered lines, as `grep -n` counts them: only a line feed ends a line. The states of a progress bar, between
    carriage returns, are yielded one by one with the same number."""
    for number, line in enumerate(lines(text), start=start):
        for state in line.split("\r"):
            if state:
                yield number, cut(state)


def _lines(path: Path, folder: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a file. If it is longer than two windows, the middle is left out."""
    with files.opened(path, folder) as fd, os.fdopen(fd, "rb", closefd=False) as stream:
        size = os.fstat(fd).st_size
        if size <= 2 * _END_BYTES:
            yield from numbered(stream.read().decode(errors="replace"))
            return
        head = stream.read(_END_BYTES)
        skipped = _line_feeds(stream, size - 2 * _END_BYTES)
        tail = stream.read()
    yield from numbered(head.decode(errors="replace"))
    yield from numbered(tail.decode(errors="replace"), start=1 + head.count(b"\n") + skipped)


def _line_feeds(stream: BinaryIO, left: int) -> int:
    """Count the line feeds in the next `left` bytes."""
    count = 0
    while left > 0 and (block := stream.read(min(left, _END_BYTES))):
        count += block.count(b"\n")
        left -= len(block)
    return count
