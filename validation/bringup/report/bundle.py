"""One file to send: the page, and beside it what the runs left, so that its links work wherever it is unpacked.

Checkpoints stay where they are: they are large, and no verdict comes from them. So does what the run did not write.
"""

import io
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePath
from urllib.parse import quote

from bringup.kernel import results
from bringup.kernel.judge import Judged
from bringup.kernel.records import files
from bringup.kernel.run_folder import RunFolder
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
            for name in _files(judged):
                _pack(archive, judged.files, name, f"{places[judged.folder]}/{name}")
        for playbook in collection.playbooks:
            for name in (results.PLAYBOOK, results.REPORT):
                if files.is_file(playbook / name):
                    _pack(archive, RunFolder(playbook), name, f"playbook/{playbook.name}/{name}")
    return packed.getvalue()


def _pack(archive: zipfile.ZipFile, folder: RunFolder, name: str, place: str) -> None:
    with archive.open(place, "w", force_zip64=True) as target:
        target.writelines(folder.blocks(name))


def _inside(places: dict[Path, str]) -> Links:
    def link(path: Path) -> str | None:
        for folder, place in places.items():
            if path.is_relative_to(folder):
                return quote(f"{place}/{path.relative_to(folder)}".removesuffix("/."))
        return None

    return link


def _files(judged: Judged) -> Iterator[str]:
    """Yield what a run wrote before it was closed, and what was made of it. Only regular files: a link may lead out."""
    closed = None if judged.seal is None else judged.seal.closed
    for name in files.below(judged.folder).files:
        is_ours = name.partition("/")[0] in _PACKED and name.isprintable() and "\\" not in name
        came_later = closed is not None and name.startswith("raw/") and name not in closed.files
        may_list = ".json" in PurePath(name).suffixes
        if is_ours and not came_later and not (may_list and _ENVIRONMENT.search(judged.files.read(name).data)):
            yield name
