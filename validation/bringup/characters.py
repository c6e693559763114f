"""Characters that no text of ours shows, wherever it came from."""

from __future__ import annotations

import re

CONTROL = r"\u0000-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069"
"""For a character class: what moves a cursor, names a window, or turns the direction of a text around."""

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 has no way to write, not even escaped (section 2.2)."""

_CONTROL = re.compile(f"[{CONTROL}]+")


def printable(text: str) -> str:
    """Safe for a terminal: one line, no control characters."""
    return _CONTROL.sub(" ", text)


def plain(text: str) -> str:
    """The same without blanks around it."""
    return printable(text).strip()


def for_xml(text: str) -> str:
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
