"""From the page to the files that it speaks of: relative, so that a folder can be moved with its page."""

import os
from collections.abc import Callable
from pathlib import Path
from urllib.parse import quote

from bringup.kernel.records import files

Links = Callable[[Path], str | None]  # a file, or a folder of a run -> the address; None: there is none


def nowhere(path: Path) -> None:
    """Link to nothing: a page on standard output does not know where it will lie."""


def beside(page: Path) -> Links:
    """Return the links of a page that is written there."""

    return lambda path: quote(os.path.relpath(path.absolute(), page.absolute().parent))


def to_evidence(links: Links, run_folder: Path, evidence: str) -> str | None:
    """Return the address of `raw/inventory.jsonl:12`, if that file is there. A browser does not go to a line."""
    path = run_folder / evidence.rpartition(":")[0]
    try:
        return links(path) if files.is_file(path) else None
    except (OSError, ValueError):  # a text of a record that is no path
        return None
