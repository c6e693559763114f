#!/usr/bin/env bash
# pydantic reads the task of a job array as another job's number
#
# One would guess: that a field of type int refuses 4101_7, which is how Slurm names task 7 of job array 4101.
#
# What happens: the field holds 41017, the number of another job, which may be somebody else's; a step such as
# 4101.0 becomes its job.
#
# Why: as Python's own int(), pydantic's lax mode takes underscores between digits, and a fraction of zeros.
#
# What to do: keep job ids as text, or give the field strict=True and parse SLURM_ARRAY_JOB_ID and
# SLURM_ARRAY_TASK_ID apart.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile pydantic==2.14.4

cat > probe.py <<'END'
from typing import Annotated

import pydantic

print("pydantic", pydantic.VERSION)
for type_ in (int, Annotated[int, pydantic.Field(strict=True)]):
    job_id = pydantic.TypeAdapter(type_)
    for text in ("4101_7", "4101.0", "4101.batch"):
        try:
            print(text, "->", job_id.validate_python(text))
        except pydantic.ValidationError:
            print(text, "is refused")
END

expected=$(
  cat <<'END'
pydantic 2.14.4
4101_7 -> 41017
4101.0 -> 4101
4101.batch is refused
4101_7 is refused
4101.0 is refused
4101.batch is refused
END
)
seen=$(venv/bin/python probe.py)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
