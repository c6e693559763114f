#!/usr/bin/env bash
# NCCL_DEBUG with a word that NCCL does not know hides its errors
#
# One would guess: that NCCL complains of a wrong word, or takes DEBUG for much to read; and that an error is printed at
# every level.
#
# What happens: DEBUG, WARNING, ERROR and 3 print nothing, as if the variable were not set: not the error that WARN
# prints, and not that the word is wrong. VERSION, which is a level, prints no error either. ATTN is a level in 2.32, where it prints
# errors too; before, it hides them.
#
# Why: src/debug.cc compares the word with the names of the levels, without regard to case. A word that equals none of
# them leaves the level below WARN.
#
# What to do: leave NCCL_DEBUG=WARN where nobody reads more, and check the word where jobs are started. NCCL may
# have failed also where the log has no line of it.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv

cat > probe.py <<'END'
import ctypes
import os
import subprocess
import sys

LIBRARY = f"{sys.argv[1]}/nvidia/nccl/lib/libnccl.so.2"
if len(sys.argv) == 3:  # an error that needs no GPU: no interface is called so
    os.environ |= {"NCCL_DEBUG": sys.argv[2], "NCCL_SOCKET_IFNAME": "none-of-this-name"}
    assert ctypes.CDLL(LIBRARY).ncclGetUniqueId(ctypes.create_string_buffer(128)) != 0
else:
    version = ctypes.c_int()
    ctypes.CDLL(LIBRARY).ncclGetVersion(ctypes.byref(version))
    print("NCCL", version.value)
    for word in ("WARN", "warn", "INFO", "ATTN", "VERSION", "DEBUG", "WARNING", "ERROR", "3"):
        done = subprocess.run([sys.executable, *sys.argv, word], capture_output=True, text=True, check=True)
        said = "no socket interface found" in done.stdout + done.stderr
        print(f"NCCL_DEBUG={word}: the error is", "printed" if said else "not printed")
END

expected=$(
  cat <<'END'
NCCL 22707
NCCL_DEBUG=WARN: the error is printed
NCCL_DEBUG=warn: the error is printed
NCCL_DEBUG=INFO: the error is printed
NCCL_DEBUG=ATTN: the error is not printed
NCCL_DEBUG=VERSION: the error is not printed
NCCL_DEBUG=DEBUG: the error is not printed
NCCL_DEBUG=WARNING: the error is not printed
NCCL_DEBUG=ERROR: the error is not printed
NCCL_DEBUG=3: the error is not printed
NCCL 23203
NCCL_DEBUG=WARN: the error is printed
NCCL_DEBUG=warn: the error is printed
NCCL_DEBUG=INFO: the error is printed
NCCL_DEBUG=ATTN: the error is printed
NCCL_DEBUG=VERSION: the error is not printed
NCCL_DEBUG=DEBUG: the error is not printed
NCCL_DEBUG=WARNING: the error is not printed
NCCL_DEBUG=ERROR: the error is not printed
NCCL_DEBUG=3: the error is not printed
END
)
seen=$(
  for version in 2.27.7 2.32.3; do
    venv/bin/pip install --quiet --no-compile --no-deps --target "$version" "nvidia-nccl-cu12==$version" >&2
    venv/bin/python probe.py "$version"
  done
)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
