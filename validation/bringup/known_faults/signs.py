"""Which signatures a run's raw files hold: evidence about causes. It decides no verdict; it says where to look.

Only programs' own words are searched: logs and error streams. Facts, tables and job records are judged by gates.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from bringup.known_faults.signatures import SIGNATURES, Signature
from bringup.records import Run, Sign

_SEARCHED = {".log", ".err", ".out", ".stderr", ".txt"}
_PROVOKED = re.compile(r"(job-|bad-exit|requeue|scontrol-|isolation|cgroup\.conf|mpi-list|slurm\.conf|nvidia-smi)")
"""Files that hold what a phase provokes on purpose (a job that takes too much memory, a device that must not open) or tables."""

_END_BYTES = 1 << 20  # of a long file its beginning and its end: the first error and the last word
_SHOWN = 200
_PATTERNS = [(one, re.compile(one.pattern)) for one in SIGNATURES.values()]
_ANY = re.compile("|".join(f"(?:{one.pattern})" for one in SIGNATURES.values()))


def match(line: str) -> Signature | None:
    """The first signature that this line bears."""
    if _ANY.search(line) is None:
        return None
    return next(one for one, pattern in _PATTERNS if pattern.search(line))


def in_lines(lines: Iterable[tuple[int, str]], where: str) -> list[Sign]:
    """One sign per signature: where it stands first, and how often. `lines`: number and text."""
    first: dict[str, tuple[int, str]] = {}
    count: dict[str, int] = {}
    for number, line in lines:
        found = match(line)
        if found is not None:
            first.setdefault(found.id, (number, line.strip()[:_SHOWN]))
            count[found.id] = count.get(found.id, 0) + 1
    return [
        Sign(signature=name, evidence=f"{where}:{number}", line=line, count=count[name])
        for name, (number, line) in first.items()
    ]


def in_run(folder: Path, run: Run) -> list[Sign]:
    """Signs in raw/ of a run, of each signature its first file. Those that only speak of a lost peer come last."""
    signs: dict[str, Sign] = {}
    for path in sorted((folder / "raw").rglob("*")):
        if path.suffix not in _SEARCHED or _PROVOKED.match(path.name) or not path.is_file():
            continue
        for sign in in_lines(_lines(path), path.relative_to(folder).as_posix()):
            known = signs.get(sign.signature)
            signs[sign.signature] = (
                sign if known is None else known.model_copy(update={"count": known.count + sign.count})
            )
    victims = {one.id for one in SIGNATURES.values() if one.victim}
    return sorted(signs.values(), key=lambda sign: sign.signature in victims)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines; of a file longer than two windows the middle is left out."""
    size = path.stat().st_size
    with path.open("rb") as stream:
        head = stream.read() if size <= 2 * _END_BYTES else stream.read(_END_BYTES)
        tail = b""
        skipped = 0
        if size > 2 * _END_BYTES:
            left = size - 2 * _END_BYTES
            while left > 0 and (block := stream.read(min(left, _END_BYTES))):
                skipped += block.count(b"\n")
                left -= len(block)
            tail = stream.read()
    number = 0
    for text in head.decode(errors="replace").splitlines():
        number += 1
        yield number, text
    yield from enumerate(tail.decode(errors="replace").splitlines(), start=number + skipped)
