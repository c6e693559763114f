"""`bringup schema`: the JSON Schema files, made again from the records."""

from __future__ import annotations

import argparse
from pathlib import Path

from bringup import report, schemas
from bringup.verbs.verb import Verbs


def add(verbs: Verbs) -> None:
    one = verbs.add_parser("schema", help="write the JSON Schema of every record, for other readers of results")
    one.add_argument(
        "folder", nargs="?", type=Path, default=schemas.FOLDER, metavar="FOLDER", help="default: validation/schemas"
    )
    one.set_defaults(verb=_schema)


def _schema(arguments: argparse.Namespace) -> int:
    for path in schemas.write(arguments.folder):
        print(report.shown_path(path))
    return 0
