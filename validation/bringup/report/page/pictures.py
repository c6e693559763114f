"""Pictures on the page are PNG in data URIs: a host name in a legend is pixels, and the page is one file."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from pathlib import Path

from bringup.records import files


@dataclass(frozen=True)
class Picture:
    title: str
    source: str  # data URI


def data_uri(path: Path) -> str:
    return "data:image/png;base64," + base64.b64encode(files.read(path).data).decode("ascii")
