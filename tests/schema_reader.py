"""Reads a file by the schema of its name, with a validator that is not ours."""

import json
from pathlib import Path

import jsonschema
from bringup import generated


def validate(file: Path) -> None:
    """Raises jsonschema.ValidationError."""
    jsonschema.Draft202012Validator(generated.schemas()[file.stem]).validate(json.loads(file.read_text()))
