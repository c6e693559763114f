"""Verbs that print what the project declares: its gates, and the schemas of its records."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from bringup.errors import UsageError

if TYPE_CHECKING:
    from bringup.cli.command_line import Verbs


def add(verbs: Verbs) -> None:
    verb = verbs.add_parser("gates", help="list the gates, with what a pass says")
    verb.add_argument("--json", action="store_true", help="one JSON array instead of the table")
    verb.add_argument(
        "--site", type=Path, metavar="FILE", help="only a site's own checks, of this file: is it right? Nothing is run"
    )
    verb.set_defaults(verb=_gates)

    verb = verbs.add_parser("schema", help="print the JSON Schema of a record, a profile or a site file")
    verb.add_argument("name", metavar="NAME", help="such as run, verdicts, metrics, profile, site")
    verb.set_defaults(verb=_schema)


def _gates(arguments: argparse.Namespace) -> int:
    from bringup.checks import catalogue, own
    from bringup.report import text

    listed = list(catalogue.GATES.values()) if arguments.site is None else own.read(arguments.site)

    if arguments.json:
        fields = ("id", "per", "rule", "unit", "severity", "proves", "phases", "claims", "fix")
        gates = [{field: getattr(gate, field) for field in fields} | {"action": gate.guide.action} for gate in listed]
        print(json.dumps(gates, indent=1))
        return 0
    header = ("gate", "per", "rule", "unit", "a miss asks to", "a pass says: it was seen that")
    rows = [(gate.id, gate.per, gate.rule, gate.unit, gate.guide.action, gate.proves) for gate in listed]
    print(text.columns(header, rows))
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    from bringup import generated

    schemas = generated.schemas()
    if arguments.name not in schemas:
        raise UsageError(f"there is no schema of {arguments.name!r}; there are {', '.join(schemas)}")
    print(json.dumps(schemas[arguments.name], indent=1, ensure_ascii=False))
    return 0
