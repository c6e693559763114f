#!/usr/bin/env bash
# The same tensors saved under two names have two checksums
#
# One would guess: that torch.save writes the same bytes for the same object, whatever the file is called.
#
# What happens: step-100.pt and final.pt of one object differ; the same name in another folder gives the same
# bytes, and so does a copy.
#
# Why: the file is a ZIP archive, all of whose entries lie in a folder named after the file without its ending.
#
# What to do: compare tensors, not files; or save into an io.BytesIO, whose folder is always called archive, and
# write its bytes.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6

cat > probe.py <<'END'
import hashlib
import io
import zipfile
from pathlib import Path

import torch


def checksum(data: bytes) -> str:
    """Return a checksum of the bytes."""
    return hashlib.sha256(data).hexdigest()


weights = {"weight": torch.ones(4)}
Path("other").mkdir()
for path in ("step-100.pt", "final.pt", "other/final.pt"):
    torch.save(weights, path)
first, final, other = (checksum(Path(path).read_bytes()) for path in ("step-100.pt", "final.pt", "other/final.pt"))
buffers = []
for _ in range(2):
    buffer = io.BytesIO()
    torch.save(weights, buffer)
    buffers.append(checksum(buffer.getvalue()))
print("torch", torch.__version__.split("+")[0])
print("step-100.pt and final.pt are the same:", first == final)
print("final.pt and other/final.pt are the same:", final == other)
print("two buffers are the same:", buffers[0] == buffers[1])
print("entry:", zipfile.ZipFile("step-100.pt").namelist()[0])
END

expected=$(
  cat <<'END'
torch 2.13.0
step-100.pt and final.pt are the same: False
final.pt and other/final.pt are the same: True
two buffers are the same: True
entry: step-100/data.pkl
END
)
seen=$(venv/bin/python probe.py 2>errors || cat errors)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
