"""JSON Schema (draft 2020-12) of every file that a record is, made from bringup.records for readers that are not this package.

The record stays the authority: what one field says about another (ranks counted twice, a mesh that is no grid) has no JSON Schema.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bringup.phases import REPOSITORY
from bringup.records import Versioned, write_text

FOLDER = REPOSITORY / "validation/schemas"
_FILE = re.compile(r"`(\w+)\.json`")


def kinds() -> dict[str, type[Versioned]]:
    """Stem of the file -> its record, for all of them. The name is the first that the record's docstring gives."""
    found: dict[str, type[Versioned]] = {}
    for kind in Versioned.__subclasses__():
        match = _FILE.search(kind.__doc__ or "")
        if match is None:
            raise ValueError(
                f"records.{kind.__name__}: its docstring must begin with the name of its file, `name.json`"
            )
        found[match[1]] = kind
    return dict(sorted(found.items()))


def schema(kind: type[Versioned]) -> dict[str, Any]:
    """What `read_record` accepts, but for rules between fields; and the version must be there."""
    made = kind.model_json_schema()
    made["required"] = sorted({*made.get("required", []), "schema_version"})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made


def texts() -> dict[str, str]:
    """File name -> content."""
    return {
        f"{stem}.schema.json": json.dumps(schema(kind), indent=1, ensure_ascii=False) + "\n"
        for stem, kind in kinds().items()
    }


def write(folder: Path = FOLDER) -> list[Path]:
    """Replace them all. A schema whose record is gone stays; `git rm` it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in texts().items():
        write_text(folder / name, text, replace=True)
    return [folder / name for name in texts()]
