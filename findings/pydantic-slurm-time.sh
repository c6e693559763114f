#!/usr/bin/env bash
# pydantic reads ten and a half minutes of Slurm as ten and a half hours
#
# One would guess: that a timedelta field either takes a time of sbatch --time or refuses it.
#
# What happens: 10:30 is 10 minutes and 30 seconds for Slurm and 10 hours and 30 minutes for pydantic; 1:30:00 is
# the same for both, so that a test with hours passes; 90 (minutes) and 1-12:00:00 (days) are refused.
#
# Why: two fields are hours and minutes in the format that pydantic documents for timedelta, and minutes and
# seconds in sbatch(1).
#
# What to do: read such a value with a validator of its own that knows Slurm's six forms.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile pydantic==2.14.4

cat > probe.py <<'END'
from datetime import timedelta

import pydantic

print("pydantic", pydantic.VERSION)
limit = pydantic.TypeAdapter(timedelta)
for text in ("10:30", "1:30:00", "90", "1-12:00:00"):
    try:
        print(text, "->", int(limit.validate_python(text).total_seconds()), "s")
    except pydantic.ValidationError:
        print(text, "is refused")
END

expected=$(
  cat <<'END'
pydantic 2.14.4
10:30 -> 37800 s
1:30:00 -> 5400 s
90 is refused
1-12:00:00 is refused
END
)
seen=$(venv/bin/python probe.py)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
