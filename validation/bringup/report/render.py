"""The one renderer: templates for HTML, figures, Markdown and the terminal. A text of a record stays a text in each.

HTML and SVG are escaped by Jinja2, Markdown by text.escaped; for the terminal, control characters are removed. A page
has no link to elsewhere and no script but its search; its Content-Security-Policy forbids the browser all others, and
requests.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from bringup.report import text

TEMPLATES = Path(__file__).parent / "templates"
COLUMNS = 100  # of a terminal in which a document is read
_SAFE: Mapping[str, Callable[[str], str]] = {
    "html": text.plain,  # Jinja2 escapes what this returns
    "svg": text.plain,
    "md": lambda words: Markup(text.escaped(words)),  # noqa: S704
    "txt": lambda words: Markup(text.plain(words)),  # noqa: S704
}


def render(template: str, **view: Any) -> str:
    """Fill in `report.md.j2` or another template. In templates, `text` is the module of that name."""
    return _environment(template.split(".")[-2]).get_template(template).render(view)


@cache
def _environment(form: str) -> jinja2.Environment:
    safe = _SAFE[form]
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=form == "md",
        # what a macro of a template made is Markup, and safe already
        finalize=lambda value: safe(value) if type(value) is str else value,
    )
    environment.globals["text"] = text
    if form == "md":
        environment.globals["table"] = _table
        environment.filters |= {"code": partial(_line, mark="`"), "line": _line}
    if form == "txt":
        environment.filters["left"] = lambda words, width: Markup(text.printable(words).ljust(width))  # noqa: S704
        environment.filters["right"] = lambda words, width: Markup(text.printable(words).rjust(width))  # noqa: S704
    return environment


def _line(words: str, mark: str = "") -> Markup:
    """Make a line in a block of code, or between the marks of a code span: it ends neither."""
    return Markup(mark + text.plain(words).replace("`", chr(39)) + mark)  # noqa: S704


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Markup:
    """Make a Markdown table whose columns are known only with its rows."""
    return Markup("\n".join(text.table(map(text.escaped, header), rows, COLUMNS)))  # noqa: S704
