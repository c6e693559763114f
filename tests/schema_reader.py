"""Reads a file by the committed schema of its name, with a validator that is not ours."""

import json
from pathlib import Path

import jsonschema
from bringup import generated


def validate(file: Path) -> None:
    """Raises jsonschema.ValidationError."""
    schema = json.loads((generated.SCHEMAS / f"{file.stem}.schema.json").read_text())
    jsonschema.Draft202012Validator(schema).validate(json.loads(file.read_text()))
