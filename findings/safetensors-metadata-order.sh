#!/usr/bin/env bash
# The same tensors with the same metadata give safetensors files of different bytes
#
# One would guess: that a format without pickle gives the same bytes for the same content, so that sha256sum
# compares checkpoints.
#
# What happens: with two or more entries of metadata nearly every save has another checksum; without metadata, or
# with one entry, all are the same.
#
# Why: the metadata passes through a HashMap of Rust, whose order is drawn anew each time, into the header; the
# tensors are sorted.
#
# What to do: compare tensors, or put all metadata into one entry as JSON with sorted keys.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile safetensors==0.8.0 numpy==2.4.6

cat > probe.py <<'END'
import hashlib
from importlib.metadata import version
from pathlib import Path

import numpy
from safetensors.numpy import save_file


def checksums(metadata: dict[str, str]) -> int:
    """Save the same tensor 20 times and count the different checksums."""
    seen = set()
    for _ in range(20):
        save_file({"weight": numpy.ones(4)}, "model.safetensors", metadata=metadata)
        seen.add(hashlib.sha256(Path("model.safetensors").read_bytes()).hexdigest())
    return len(seen)


print("safetensors", version("safetensors"))
print("one entry:", checksums({"format": "pt"}), "checksum")
several = checksums({"format": "pt", "step": "100", "ranks": "64", "precision": "bf16", "model": "example"})
print("five entries:", "several checksums" if several > 1 else "1 checksum")
END

expected=$(
  cat <<'END'
safetensors 0.8.0
one entry: 1 checksum
five entries: several checksums
END
)
seen=$(venv/bin/python probe.py)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
