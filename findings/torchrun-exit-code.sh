#!/usr/bin/env bash
# torchrun ends with 1 whatever its processes ended with
#
# One would guess: that a program's exit code, or 128 and the number of the signal that killed it, is that of
# torchrun, as it is with srun.
#
# What happens: 42 becomes 1, and so does a process ended by SIGKILL: Slurm's RequeueExit, a batch script's case
# and an alarm on 137 see the same number for all causes.
#
# Why: the agent raises ChildFailedError, and record in torch/distributed/elastic/multiprocessing/errors lets it
# leave Python, which ends with 1.
#
# What to do: read the code from its table of failures (exitcode), or let the program write it into a file that
# the batch script reads.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6

cat > probe.py <<'END'
import os
import signal
import sys

if sys.argv[1] == "KILL":
    os.kill(os.getpid(), signal.SIGKILL)
sys.exit(int(sys.argv[1]))
END

expected=$(
  cat <<'END'
torch 2.13.0
0: torchrun 0, its table ''
42: torchrun 1, its table '42'
KILL: torchrun 1, its table '-9'
END
)
seen=$(
  venv/bin/python -c 'import torch; print("torch", torch.__version__.split("+")[0])'
  for end in 0 42 KILL; do
    code=0
    venv/bin/torchrun --standalone --nproc-per-node 1 probe.py "$end" 2>errors || code=$?
    echo "$end: torchrun $code, its table '$(sed -En 's/^ *exitcode +: (-?[0-9]+).*/\1/p' errors)'"
  done
)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
