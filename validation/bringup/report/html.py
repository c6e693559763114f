"""The one renderer of HTML. No script, no link to elsewhere, no network.

Every text that comes from a record goes through Jinja2's autoescape; no template marks anything as safe, and the
Content-Security-Policy of every page forbids the browser scripts and requests as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2

from bringup.report.text import plain

TEMPLATES = Path(__file__).parent / "templates"


def render(template: str, view: Mapping[str, Any]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_one_line,
    )
    return environment.get_template(template).render(view)


def _one_line(value: Any) -> Any:
    """No control characters in a record's text; escaping comes after this. What a macro of a template made is
    escaped already."""
    return plain(value) if type(value) is str else value
