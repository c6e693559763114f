#!/usr/bin/env bash
# A bandwidth that is not a number is within every limit of a JSON Schema
#
# One would guess: that NaN fails a schema with a minimum and a maximum, as it fails a limit of pydantic.
#
# What happens: jsonschema finds no error; an infinite value fails the maximum, as it should.
#
# Why: Python's json reads NaN although JSON has none, and minimum in jsonschema/_keywords.py reports a value that
# is less than the limit, which NaN never is.
#
# What to do: read with parse_constant that raises, write with allow_nan=False, and compare as not value >= limit.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile jsonschema==4.26.0 pydantic==2.14.4

cat > probe.py <<'END'
import json
from importlib.metadata import version
from typing import Annotated

import jsonschema
import pydantic

print("jsonschema", version("jsonschema"), "pydantic", pydantic.VERSION)
limits = jsonschema.Draft202012Validator({"type": "number", "minimum": 340, "maximum": 500})
field = pydantic.TypeAdapter(Annotated[float, pydantic.Field(ge=340, le=500)])
for text in ("12.5", "Infinity", "NaN"):
    value = json.loads(text)
    errors = len(list(limits.iter_errors(value)))
    try:
        field.validate_python(value)
        pydantic_errors = 0
    except pydantic.ValidationError as error:
        pydantic_errors = error.error_count()
    print(f"{text}: {errors} errors of jsonschema, {pydantic_errors} of pydantic")
END

expected=$(
  cat <<'END'
jsonschema 4.26.0 pydantic 2.14.4
12.5: 1 errors of jsonschema, 1 of pydantic
Infinity: 1 errors of jsonschema, 1 of pydantic
NaN: 0 errors of jsonschema, 1 of pydantic
END
)
seen=$(venv/bin/python probe.py)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
