"""One file to send: the page, and beside it what the runs left, so that its links work wherever it is unpacked.

Checkpoints stay where they are: they are large, and no verdict comes from them.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from bringup import results
from bringup.report import outputs, page
from bringup.report.collection import Collection
from bringup.report.page.links import Links

PAGE = "report.html"
_LEFT_OUT = "checkpoints"


def pack(collection: Collection) -> bytes:
    """A zip archive. Raises OSError when a file of a run cannot be read."""
    places = {
        judged.folder: f"{results.PACKED}/{number:02}-{judged.run.phase}"
        for number, judged in enumerate(collection.judged)
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.comment = (outputs.ARCHIVE.mark or "").encode()
        archive.writestr(PAGE, page.render(collection, _inside(places)))
        for folder, place in places.items():
            for path in _files(folder):
                archive.write(path, f"{place}/{path.relative_to(folder)}")
        for playbook in collection.playbooks:
            for name in (results.PLAYBOOK, results.REPORT):
                if (playbook / name).is_file():
                    archive.write(playbook / name, f"playbook/{playbook.name}/{name}")
    return packed.getvalue()


def _inside(places: dict[Path, str]) -> Links:
    def link(path: Path) -> str | None:
        for folder, place in places.items():
            if path.is_relative_to(folder):
                return quote(f"{place}/{path.relative_to(folder)}".removesuffix("/."))
        return None

    return link


def _files(folder: Path) -> Iterator[Path]:
    """Regular files only: a link may lead out of the folder."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder).parts
        if inside[0] != _LEFT_OUT and path.is_file() and not path.is_symlink():
            yield path
