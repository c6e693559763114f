"""One file to send: the page, and beside it what the runs left, so that its links work wherever it is unpacked.

Checkpoints stay where they are: they are large, and no verdict comes from them. So does what the run did not write.
"""

import io
import os
import re
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

from bringup.kernel import results
from bringup.kernel.judge import Judged
from bringup.kernel.records import files
from bringup.report import outputs, page
from bringup.report.collection import Collection
from bringup.report.links import Links

PAGE = "report.html"
_PACKED = {"raw", "reports", *outputs.OF_A_RUN}
_ENVIRONMENT = re.compile(rb'"env"\s*:\s*[\[{]')  # nccl-tests and others list every variable so, secrets too


def pack(collection: Collection) -> bytes:
    """Pack a zip archive. Raises OSError when a file of a run cannot be read."""
    places = {
        each.folder: f"{results.PACKED}/{number:02}-{each.run.phase}" for number, each in enumerate(collection.judged)
    }
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(PAGE, page.render(collection, _inside(places)))
        for judged in collection.judged:
            for path in _files(judged):
                _pack(archive, path, judged.folder, f"{places[judged.folder]}/{path.relative_to(judged.folder)}")
        for playbook in collection.playbooks:
            for name in (results.PLAYBOOK, results.REPORT):
                if files.is_file(playbook / name):
                    _pack(archive, playbook / name, playbook, f"playbook/{playbook.name}/{name}")
    return packed.getvalue()


def _pack(archive: zipfile.ZipFile, path: Path, beneath: Path, name: str) -> None:
    with (
        files.opened(path, beneath) as fd,
        os.fdopen(fd, "rb", closefd=False) as source,
        archive.open(name, "w", force_zip64=True) as target,
    ):
        shutil.copyfileobj(source, target)


def _inside(places: dict[Path, str]) -> Links:
    def link(path: Path) -> str | None:
        for folder, place in places.items():
            if path.is_relative_to(folder):
                return quote(f"{place}/{path.relative_to(folder)}".removesuffix("/."))
        return None

    return link


def _files(judged: Judged) -> Iterator[Path]:
    """Yield what a run wrote before it was closed, and what was made of it. Only regular files: a link may lead out."""
    closed = None if judged.seal is None else judged.seal.closed
    for path in files.below(judged.folder)[0]:
        name = path.relative_to(judged.folder).as_posix()
        is_ours = name.partition("/")[0] in _PACKED and name.isprintable() and "\\" not in name
        came_later = closed is not None and name.startswith("raw/") and name not in closed.files
        if is_ours and not came_later and not _lists_environment(path, judged.folder):
            yield path


def _lists_environment(path: Path, beneath: Path) -> bool:
    return ".json" in path.suffixes and _ENVIRONMENT.search(files.read(path, beneath).data) is not None
