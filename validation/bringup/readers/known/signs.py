"""Signatures in a run's raw files: hints at causes, with the place. They decide no verdict.

Only logs and error streams are searched. Facts, tables and job records are judged by gates.

A line of a level below an error bears none: programs try again, and warn of what they do not need. A pattern is
searched in thousands of lines at once, which is several times faster than line by line, and only where they have a
word without which it cannot match: a log of 40 MB took 470 passes.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import cache
from itertools import accumulate, islice
from pathlib import PurePosixPath
from re import _constants, _parser  # type: ignore[attr-defined]

from bringup.kernel.facts.parser_result import cut, lines
from bringup.kernel.records import Sign, files
from bringup.kernel.results import BATCH_LOG
from bringup.kernel.run_folder import RunFolder
from bringup.readers.known.signatures import IN_ORDER, SIGNATURES, Signature

_SEARCHED = {".log", ".err", ".out", ".stderr", ".txt"}
_PROVOKED = re.compile(r"(job-|bad-exit|requeue|scontrol-|isolation|cgroup\.conf|mpi-list|slurm\.conf|nvidia-smi)")
"""Files with tables, or with errors that a phase provokes on purpose (too much memory, a device that must not open)."""

_AT_ONCE = 10_000  # lines
_SHOWN = 200
_ROLES = ("root", "either", "consequence")
_LETTERS = 4
_WORD = re.compile(f"[A-Za-z]{{{_LETTERS},}}")
_GAP = 200  # letters between two parts of a pattern: without a limit a line that repeats the first part takes minutes

_LEVEL = r"(?:^|(?<=[\s\[:|(-]))(?:INFO|DEBUG|TRACE|(?<!NCCL )WARN(?:ING)?)(?=[\s\]:|)])"  # `NCCL_DEBUG=INFO` is none
_BELOW_AN_ERROR = re.compile(
    r"\[(?:NeMo )?[WI][ \d]|\b[WI]\d{4} \d\d:"  # [W socket.cpp:752], [W1120 08:00:00.1, [NeMo W 2025-, W1120 08:00:
    rf"|\w*[Ww]arning: |\bUCX +(?:DIAG|REQ)\b|\bdebug[2-5]?: |{_LEVEL}|\bignoring\b|\bras/\w+\.cc:"
    r"|^(?:\S*:)?\s+raise "  # source
)
"""The level of a line, as torch, NCCL, UCX and Python print it. NCCL prints its errors at its level WARN, also those of
its RAS service, without which it goes on."""


def _limited(pattern: str) -> str:
    """Return the pattern with a limit for each `.*`, `\\S*`, `\\w+`."""
    return re.sub(r"(\.|\\[Sw])([*+])", lambda gap: f"{gap[1]}{{{int(gap[2] == '+')},{_GAP}}}", pattern)


@cache  # compiled when a text has its word: most texts need a few of the hundreds
def _compiled(limited: str) -> re.Pattern[str]:
    return re.compile(limited, re.MULTILINE)


def _needed(limited: str) -> str:
    """Return the longest run of letters that every match holds, as Python's own parser reads the pattern; empty: none
    is long enough to tell texts apart."""
    runs, parsed = [""], _parser.parse(limited, re.MULTILINE)
    for kind, value in parsed:
        is_letter = kind is _constants.LITERAL and _WORD.fullmatch(chr(value) * _LETTERS) is not None
        runs = [*runs[:-1], runs[-1] + chr(value)] if is_letter else [*runs, ""]
    longest = max(runs, key=len)
    is_cased = not parsed.state.flags & re.IGNORECASE
    return longest if is_cased and len(longest) >= _LETTERS else ""


_PATTERNS = [(signature, _limited(pattern)) for signature in IN_ORDER for pattern in signature.patterns]
_NEEDED = [_needed(pattern) for _, pattern in _PATTERNS]
_SUBJECTS = {each.id: _limited(each.subject) for each in IN_ORDER if each.subject is not None}
_BESIDE = {each.id: _limited(each.beside) for each in IN_ORDER if each.beside is not None}
_NOT_AFTER = {each.id: _limited(each.not_after) for each in IN_ORDER if each.not_after is not None}
_TELLING = {each.id: _limited(each.telling) for each in IN_ORDER if each.telling is not None}
_OVER = {  # of a root something stays behind, as after an eviction
    each.id: (re.compile(f"{each.begin or ''}(?:{'|'.join(each.patterns)})", re.MULTILINE), re.compile(each.over))
    for each in IN_ORDER
    if each.over is not None and each.role != "root"
}


def match(line: str) -> Signature | None:
    """Return the first signature that matches this line; None: no signature does."""
    return _first(line, range(len(_PATTERNS)))


def _first(line: str, candidates: Iterable[int]) -> Signature | None:
    """Return the first signature of these patterns, by their places in _PATTERNS, that counts in this line."""
    for place in candidates:
        signature, pattern = _PATTERNS[place]
        subject = _SUBJECTS.get(signature.id, "")
        if (words := _compiled(pattern).search(line)) is None or _compiled(subject).search(line) is None:
            continue
        begin = line.rfind(": error: ", 0, words.start()) + 1  # by a program whose line another one repeats
        if signature.as_warning or _BELOW_AN_ERROR.search(line, begin, words.start()) is None:
            return signature
    return None


def in_lines(
    numbered_lines: Iterable[tuple[int, str]], where: str, apart: Callable[[int, str], Hashable] = lambda *_: None
) -> list[Sign]:
    """Find one sign per signature: its first place and its count. numbered_lines: number and text. apart: lines for
    which it returns different values have signs of their own."""
    first: dict[tuple[str, Hashable], tuple[int, str]] = {}
    count: dict[tuple[str, Hashable], int] = {}
    confirmed: set[str] = set()
    over: dict[str, int] = {}  # signature -> the line after which its words are usual
    remaining = iter(numbered_lines)
    while batch := list(islice(remaining, _AT_ONCE)):
        text = _Lines([line for _, line in batch])
        confirmed |= {name for name, pattern in _BESIDE.items() if name not in confirmed and text.first(pattern)}
        for name, pattern in _NOT_AFTER.items():
            if name not in over and (begin := text.first(pattern)) is not None:
                over[name] = batch[begin][0]
        for index, places in text.candidates():
            number, line = batch[index]
            signature = _first(line, places)
            if signature is None or number > over.get(signature.id, number):
                continue
            key, tells = (signature.id, apart(number, line)), _compiled(_TELLING.get(signature.id, "")).search
            if key not in first or (tells(line) and not tells(first[key][1])):
                first[key] = number, line.strip()[:_SHOWN]
            count[key] = count.get(key, 0) + 1
    return [
        Sign(signature=name, evidence=f"{where}:{number}", line=line, count=count[name, kind])
        for (name, kind), (number, line) in first.items()
        if name not in _BESIDE or name in confirmed
    ]


def is_over(signature: str, text: str) -> bool:
    """Say whether a later line of the text says of each device of this signature that all is well again."""
    begun, ended = _OVER.get(signature, (None, None))
    if begun is None or ended is None:
        return False
    events = [(words.start(), words, True) for words in begun.finditer(text)]
    events += [(words.start(), words, False) for words in ended.finditer(text)]
    stands: dict[str, bool] = {}
    for _, words, is_bad in sorted(events, key=lambda event: event[0]):
        stands["".join([part for part in words.groups() if part][:1])] = is_bad
    return not any(stands.values())


class _Lines:
    """Many lines as one text."""

    def __init__(self, several: Sequence[str]) -> None:
        self._text = "\n".join(several)
        self._begins = list(accumulate((len(line) + 1 for line in several), initial=0))
        self._words = "\n".join(set(_WORD.findall(self._text)))

    def first(self, pattern: str) -> int | None:
        """Return the index of the first line with this pattern."""
        return next(self._with(pattern), None)

    def candidates(self) -> list[tuple[int, list[int]]]:
        """Return (index of a line, places in _PATTERNS that may match it), in the order of the lines."""
        by_line: dict[int, list[int]] = {}
        for place, (_, pattern) in enumerate(_PATTERNS):
            for index in self._with(pattern) if _NEEDED[place] in self._words else ():
                by_line.setdefault(index, []).append(place)
        return sorted(by_line.items())

    def _with(self, limited: str) -> Iterator[int]:
        """Yield lines in which a match begins. It may end in a later line: a caller searches the line alone again."""
        at, pattern = 0, _compiled(limited)
        while words := pattern.search(self._text, at):
            index = bisect_right(self._begins, words.start()) - 1
            yield index
            at = self._begins[index + 1]


def in_run(folder: RunFolder) -> list[Sign]:
    """Find signs in raw/ of a run: one per signature, with its first file. First causes come first, consequences last.

    A file that cannot be read is skipped; the reading of evidence reports it.
    """
    signs: dict[str, Sign] = {}
    for name in sorted(folder.raw.files, key=lambda name: name == BATCH_LOG):  # the screen may repeat a step's log
        path = PurePosixPath(name)
        if path.suffix not in _SEARCHED or _PROVOKED.match(path.name):
            continue
        try:
            in_file = in_lines(_lines(folder, name), name)
        except OSError:
            continue
        for sign in in_file:
            known = signs.get(sign.signature)
            if known is None:
                signs[sign.signature] = sign
            elif name != BATCH_LOG:
                signs[sign.signature] = known.model_copy(update={"count": known.count + sign.count})
    return sorted(signs.values(), key=lambda sign: _ROLES.index(SIGNATURES[sign.signature].role))


def numbered(text: str, start: int = 1) -> Iterator[tuple[int, str]]:
    """Yield lines with numbers, as `grep -n`: only a line feed ends one. The states of a progress bar, between carriage
    returns, are yielded one by one with the same number."""
    for number, line in enumerate(lines(text), start=start):
        for state in line.split("\r"):
            if state:
                yield number, cut(state)


def _lines(folder: RunFolder, name: str) -> Iterator[tuple[int, str]]:
    """Numbered lines of a file. Of one with more than MOST_OF_A_LOG, the last block is read, too."""
    last_block = (folder.path / name).lstat().st_size - files.BLOCK_BYTES
    number, read, rest = 1, 0, b""
    for block in folder.blocks(name):
        read += len(block)
        text = rest + block
        end = text.rfind(b"\n") + 1 or len(text)  # a line that is longer than a block is searched in pieces
        if read <= files.MOST_OF_A_LOG or read > last_block:
            yield from numbered(text[:end].decode(errors="replace"), start=number)
        number, rest = number + text.count(b"\n", 0, end), text[end:]
    yield from numbered(rest.decode(errors="replace"), start=number)
