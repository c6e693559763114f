"""The terminal: outcomes in colour where there is one, plain text in a file or a batch log."""

import re
import sys
import textwrap
from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.highlighter import RegexHighlighter
from rich.segment import Segment
from rich.theme import Theme

from bringup.kernel.characters import in_lines

_COMMAND = re.compile(r"(?:^ *|\b(?:why|next|or): )bringup ")
_MARKED = re.compile(r" *(?:[A-Z][A-Z ]{3,} +)?")


class _Outcomes(RegexHighlighter):
    base_style = "outcome."
    highlights = [  # noqa: RUF012  # rich's own way to declare them
        r"(?m)^ *(?P<good>PASS|KEPT|FOUND)\b",
        r"(?m)^ *(?P<bad>FAIL|MISSED|WRONG PLACE|WRONG CAUSE|FALSE ALARM)\b",
        r"(?m)^ *(?P<open>INCOMPLETE|NOT (?:RUN|ASKED|KNOWN|PROVEN|PERFORMED|APPLICABLE)|PARTLY|WARN)\b",
    ]


class _Console(Console):
    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Clean every text, which may come from a log, and keep rich's own control codes: they draw a line anew."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=in_lines(segment.text))

    def print(self, *objects: Any, **options: Any) -> None:
        """Break a long text of ours between words on a terminal, under the word that its mark begins."""
        lines = objects[0].split("\n") if self.is_terminal and len(objects) == 1 and isinstance(objects[0], str) else []
        super().print(*(["\n".join(fitted(line, self.width) for line in lines)] if lines else objects), **options)

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError. rich would exit with code 1, which says that the cluster failed."""
        raise BrokenPipeError


def fitted(line: str, width: int) -> str:
    """Shorten a line to the width. A command stays in one line, for who copies it."""
    if len(line) <= width or _COMMAND.search(line):
        return line
    indent = " " * len(_MARKED.match(line)[0])  # type: ignore[index]
    words = textwrap.wrap(line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return "\n".join(words)


def console() -> Console:
    """Return one that wraps nothing and reads no markup: what is printed may come from a log."""
    theme = Theme({"outcome.good": "bold green", "outcome.bad": "bold red", "outcome.open": "bold yellow"})
    stream = getattr(sys.stdout, "unfiltered", None)  # Printable would take the control codes, too
    return _Console(file=stream, highlighter=_Outcomes(), markup=False, emoji=False, soft_wrap=True, theme=theme)


def show(text: str) -> None:
    """Print on standard output, as every verb shows outcomes; NO_COLOR and a file have no colour."""
    console().print(text)
