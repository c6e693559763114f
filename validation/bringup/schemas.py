"""The JSON Schemas (draft 2020-12) of record files, for other programs: `bringup schema`.

The record stays the authority: a rule between two fields has no JSON Schema.
"""

from __future__ import annotations

import re
from typing import Any

from bringup.plan.catalogue import GATES
from bringup.plan.gate import Gate
from bringup.plan.profile import Profile
from bringup.plan.rules import DECLARABLE, allowed
from bringup.plan.site import Site
from bringup.records import Record, Versioned

_FILE = re.compile(r"`(\w+)\.json`")


def kinds() -> dict[str, type[Versioned]]:
    """Return stem of the file -> its record, for all. The name is the first that the record's docstring gives."""
    classes: dict[str, type[Versioned]] = {}
    for kind in Versioned.__subclasses__():
        match = _FILE.search(kind.__doc__ or "")
        if match is None:
            raise ValueError(
                f"records.{kind.__name__}: its docstring must begin with the name of its file, `name.json`"
            )
        classes[match[1]] = kind
    return dict(sorted(classes.items()))


def schema(kind: type[Record]) -> dict[str, Any]:
    """Describe what `read_record` accepts, but for rules between fields; and the version must be there."""
    made = kind.model_json_schema()
    made["required"] = sorted({*made.get("required", []), "schema_version"})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made


def profile_schema() -> dict[str, Any]:
    """Describe a profile before its `extends` is resolved, for editors and other programs: which gates take a number,
    in which unit and direction. Only the reader checks how fields, and files, agree."""
    made = Profile.model_json_schema()
    made["$defs"]["NotApplicable"]["properties"]["gate"]["enum"] = list(GATES)
    entries = made["properties"]["expect"]
    del entries["additionalProperties"]
    entries["properties"] = {gate.id: _entry(gate) for gate in GATES.values() if gate.expect == "profile"}
    entries["additionalProperties"] = False
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | made


def _entry(gate: Gate) -> dict[str, Any]:
    rules = [rule for rule in DECLARABLE if allowed(gate.rule, rule)]
    other_rules = [rule for rule in DECLARABLE if rule not in rules]
    return {
        "allOf": [{"$ref": "#/$defs/Expectation"}],
        "description": f"a pass says: {gate.proves}",
        "properties": {"unit": {"const": gate.unit}},
        "oneOf": [{"required": [rule]} for rule in rules],
        "not": {"anyOf": [{"required": [rule]} for rule in other_rules]},
    }


def schemas() -> dict[str, dict[str, Any]]:
    """Return schemas by name. Besides the records: what people write, profiles and site files."""
    made = {stem: schema(kind) for stem, kind in kinds().items()} | {"profile": profile_schema(), "site": schema(Site)}
    return dict(sorted(made.items()))
