#!/usr/bin/env bash
# rich swallows the rank before a line of torchrun
#
# One would guess: that console.print and a cell of a table show a line of a log as it is.
#
# What happens: [rank0]: and [default0]: vanish, so that nobody sees whose error it is, and a device in brackets
# raises MarkupError; [0], [Rank 0] and gpu[01-04] stay, so that it passes unnoticed.
#
# Why: what stands in brackets and begins with a small letter, #, / or @ is a tag for RE_TAGS in rich/markup.py,
# and a style that nobody defined is dropped without a word.
#
# What to do: give text of others as rich.text.Text, or through rich.markup.escape, or with markup=False.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile rich==15.0.0

cat > probe.py <<'END'
from importlib.metadata import version

from rich.console import Console
from rich.errors import MarkupError
from rich.markup import escape

LINES = (
    "[rank0]: NCCL error",
    "[default0]: NCCL error",
    "[Rank 0] NCCL error",
    "[0]: NCCL error",
    "gpu[01-04] drained",
    "open [/dev/nvidia0] failed",
)
print("rich", version("rich"))
console = Console(width=80, color_system=None)
for line in LINES:
    try:
        console.print("as it is:", line)
    except MarkupError:
        print("MarkupError")
    console.print("escaped:", escape(line))
END

expected=$(
  cat <<'END'
rich 15.0.0
as it is: : NCCL error
escaped: [rank0]: NCCL error
as it is: : NCCL error
escaped: [default0]: NCCL error
as it is: [Rank 0] NCCL error
escaped: [Rank 0] NCCL error
as it is: [0]: NCCL error
escaped: [0]: NCCL error
as it is: gpu[01-04] drained
escaped: gpu[01-04] drained
MarkupError
escaped: open [/dev/nvidia0] failed
END
)
seen=$(venv/bin/python probe.py)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
