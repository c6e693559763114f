"""The terminal: outcomes in colour where there is one, plain text in a file or a batch log."""

from __future__ import annotations

from rich.console import Console
from rich.highlighter import RegexHighlighter
from rich.theme import Theme


class _Outcomes(RegexHighlighter):
    base_style = "outcome."
    highlights = [  # noqa: RUF012  # rich's own way to declare them
        r"(?m)^ *(?P<good>PASS|KEPT|FOUND)\b",
        r"(?m)^ *(?P<bad>FAIL|MISSED|WRONG SUBJECT|WRONG CAUSE|FALSE ALARM)\b",
        r"(?m)^ *(?P<open>INCOMPLETE|NOT RUN|NOT ASKED|NOT KNOWN|PARTLY|REHEARSED|NOT PERFORMED|NOT APPLICABLE|WARN)\b",
    ]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """rich would end us with exit code 1, which says that the cluster failed."""
        raise BrokenPipeError


def console() -> Console:
    """Wraps nothing and reads no markup: what is printed may come from a log."""
    theme = Theme({"outcome.good": "bold green", "outcome.bad": "bold red", "outcome.open": "bold yellow"})
    return _Console(highlighter=_Outcomes(), markup=False, emoji=False, soft_wrap=True, theme=theme)


def show(text: str) -> None:
    """On standard output, as every verb shows outcomes; NO_COLOR and a file have no colour."""
    console().print(text)
