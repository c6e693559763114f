"""Reads a file by the schema of its name, with a validator that is not ours."""

import functools
import json
from pathlib import Path

import jsonschema
from bringup import schemas


@functools.cache
def validators() -> dict[str, jsonschema.Draft202012Validator]:
    """By name. Each is made once: a schema takes 0.1 s."""
    return {name: jsonschema.Draft202012Validator(schema) for name, schema in schemas.schemas().items()}


def validate(file: Path) -> None:
    """Raises jsonschema.ValidationError."""
    validators()[file.stem].validate(json.loads(file.read_text()))
