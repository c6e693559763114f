#!/usr/bin/env bash
# torchrun gives one process all CPU threads, and each of several a single one
#
# One would guess: that torchrun sets OMP_NUM_THREADS=1 for its processes however many there are.
#
# What happens: with --nproc-per-node 1 it does not set the variable: the baseline of a scaling test has all cores
# for its CPU work (optimizer offloading, decoding, gloo), and each rank of the run that is compared with it has
# one.
#
# Why: torch/distributed/run.py sets it where the variable is absent and nproc_per_node is above 1.
#
# What to do: export OMP_NUM_THREADS in every run, the one of a single process too.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6

cat > probe.py <<'END'
import os

print(os.environ.get("RANK"), os.environ.get("OMP_NUM_THREADS", "not set"))
END

expected=$(
  cat <<'END'
torch 2.13.0
1:
0 not set
2:
0 1
1 1
END
)
seen=$(
  venv/bin/python -c 'import torch; print("torch", torch.__version__.split("+")[0])'
  unset OMP_NUM_THREADS
  for processes in 1 2; do
    echo "$processes:"
    venv/bin/torchrun --standalone --nproc-per-node "$processes" probe.py 2>errors | sort || cat errors
  done
)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
