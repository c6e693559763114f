#!/usr/bin/env bash
# NCCL reads 8M as 8, and true as 0
#
# One would guess: that a number with a suffix (NCCL_BUFFSIZE=8M) means what it means elsewhere, that yes and true switch
# something on (NCCL_IB_DISABLE=true), or that NCCL complains and keeps its default.
#
# What happens: the digits at the beginning count, and a value without any is 0. NCCL's own log, at NCCL_DEBUG=INFO, says
# "set by environment to 8." without a warning. So NCCL_NVLS_ENABLE=true switches NVLS off.
#
# Why: ncclLoadParam (src/misc/param.cc), which reads most of NCCL's whole numbers, gives the value to strtoll and looks at
# errno alone. It is 0 for text behind the digits and for text without digits.
#
# What to do: write plain numbers, 0 and 1, and look for "set by environment to" in the log.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile --no-deps --target nccl nvidia-nccl-cu12==2.29.7

cat > probe.py <<'END'
import ctypes
import os
import re
import subprocess
import sys

LIBRARY = "nccl/nvidia/nccl/lib/libnccl.so.2"
NAME = "NCCL_SET_THREAD_NAME"  # a whole number that NCCL reads before it needs a GPU
if len(sys.argv) == 2:
    os.environ |= {"NCCL_DEBUG": "INFO", "NCCL_SOCKET_IFNAME": "lo", NAME: sys.argv[1]}
    assert ctypes.CDLL(LIBRARY).ncclGetUniqueId(ctypes.create_string_buffer(128)) == 0
else:
    version = ctypes.c_int()
    ctypes.CDLL(LIBRARY).ncclGetVersion(ctypes.byref(version))
    print("NCCL", version.value)
    for value in ("8388608", "8M", "0x10", "1e6", "true", "yes", "on"):
        done = subprocess.run([sys.executable, *sys.argv, value], capture_output=True, text=True, check=True)
        print(value, "is read as", re.search(rf"{NAME} set by environment to (\S+)\.", done.stdout + done.stderr)[1])
END

expected=$(
  cat <<'END'
NCCL 22907
8388608 is read as 8388608
8M is read as 8
0x10 is read as 16
1e6 is read as 1
true is read as 0
yes is read as 0
on is read as 0
END
)
seen=$(venv/bin/python probe.py)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
