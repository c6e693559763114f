"""Verbs that print what the project declares: its gates, and the schemas of its records."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bringup.cli.command_line import Verbs


def add(verbs: Verbs) -> None:
    verb = verbs.add_parser("gates", help="list the gates, with what a pass says")
    verb.add_argument("--json", action="store_true", help="one JSON array instead of the table")
    verb.set_defaults(verb=_gates)

    verb = verbs.add_parser("schema", help="write the JSON Schema of every record, for other readers of results")
    verb.add_argument(
        "folder",
        nargs="?",
        type=Path,
        metavar="FOLDER",
        help="default: validation/schemas",
    )
    verb.set_defaults(verb=_schema)


def _gates(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue
    from bringup.report import text

    if arguments.json:
        fields = ("id", "per", "rule", "unit", "severity", "proves", "phases", "claims", "fix")
        gates = [
            {field: getattr(gate, field) for field in fields} | {"action": gate.guide.action}
            for gate in catalogue.GATES.values()
        ]
        print(json.dumps(gates, indent=1))
        return 0
    header = ("gate", "per", "rule", "unit", "a miss asks to", "a pass says: it was seen that")
    rows = [
        (gate.id, gate.per, gate.rule, gate.unit, gate.guide.action, gate.proves) for gate in catalogue.GATES.values()
    ]
    print(text.columns(header, rows))
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    from bringup import generated
    from bringup.report import outputs, text

    folder = arguments.folder or generated.SCHEMAS
    outputs.make_folder("schema", folder)
    for name, content in generated.schemas().items():
        output = outputs.Output("schema", folder / name, outputs.SCHEMA)
        outputs.write(output, content)
        print(text.shown_path(output.path))
    return 0
