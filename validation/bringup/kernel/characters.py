"""Characters that no text of ours shows, wherever it came from."""

import re
from collections.abc import Iterable
from typing import Any, TextIO

CONTROL = r"\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069"
"""For a character class: what moves a cursor, names a window, or turns the direction of a text around."""

_NOT_XML = "[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]"  # compiled when it is needed: 6 ms
"""What XML 1.0 has no way to write, not even escaped (section 2.2)."""

_CONTROL = re.compile(f"[{CONTROL}]+")


_UNPRINTABLE = rf"(?![\n\t])[{CONTROL}]"
_IN_LINES = re.compile(_UNPRINTABLE)
_COLOURS = re.compile(r"\x1b\[[0-9;]{0,20}m")
_BUT_COLOURS = re.compile(rf"(?!\x1b\[[0-9;]{{0,20}}m){_UNPRINTABLE}")


class Printable:
    """A stream that shows no control character, wherever a text came from. Colours stay, on a terminal.

    The console that draws lines anew (report/terminal.py) cleans its texts itself, and writes to `unfiltered`."""

    def __init__(self, stream: TextIO) -> None:
        self.unfiltered = stream
        self._unprintable = _BUT_COLOURS if stream.isatty() else _IN_LINES

    def write(self, text: str) -> int:
        return self.unfiltered.write(self._unprintable.sub(" ", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.unfiltered, name)


def in_lines(text: str) -> str:
    """Return the text safe for a terminal, with its line feeds and tabs."""
    return _IN_LINES.sub(" ", text)


def without_colours(text: str) -> str:
    """Return what a program prints as it is read: it may print colours into a log, too."""
    return _COLOURS.sub("", text)


def printable(text: str) -> str:
    """Make a text safe for a terminal: one line, no control characters."""
    return _CONTROL.sub(" ", text)


def plain(text: str) -> str:
    """Make a text safe in the same way, without blanks around it."""
    return printable(text).strip()


def for_xml(text: str) -> str:
    return re.sub(_NOT_XML, "\N{REPLACEMENT CHARACTER}", text)


def many(count: int, noun: str) -> str:
    """Count in words: `1 node`, `2 nodes`, `1,024 nodes`."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


_LEAST_ALIKE = 0.7  # difflib's ratio: at its own 0.6, --steps would be --signers


def meant(word: str, known: Iterable[str]) -> str:
    """Return `; did you mean explain?`, or nothing: no guess is better than one that cannot help."""
    import difflib  # not for every start

    near = difflib.get_close_matches(word, list(known), 1, _LEAST_ALIKE)
    return f"; did you mean {near[0]}?" if near else ""
