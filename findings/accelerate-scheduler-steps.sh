#!/usr/bin/env bash
# A schedule that accelerate prepared ends earlier the more GPUs there are
#
# One would guess: that scheduler.step() after prepare() is one step of the schedule, as under torchrun alone.
#
# What happens: it is one step for each process: a schedule of 8 steps has come to its end after 4 steps on 2
# GPUs, and after 1 on 8. Losses look like those of a rate that is too low, and a comparison of numbers of GPUs
# compares schedules.
#
# Why: AcceleratedScheduler.step calls the real one num_processes times unless split_batches is set, for schedules
# that were written for the batches of one process (accelerate/scheduler.py).
#
# What to do: write schedules for all processes' steps together, or leave the scheduler out of prepare().
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile torch==2.13.0 accelerate==1.15.0

cat > probe.py <<'END'
from importlib.metadata import version

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(1, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.8)
schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, total_iters=8)
model, optimizer, schedule = accelerator.prepare(model, optimizer, schedule)
rates = []
for _ in range(5):
    rates.append(round(optimizer.param_groups[0]["lr"], 2))
    model(torch.ones(1, 1)).sum().backward()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
if accelerator.is_main_process:
    print("accelerate", version("accelerate"), "processes", accelerator.num_processes, "rates", rates)
accelerator.end_training()
END

expected=$(
  cat <<'END'
accelerate 1.15.0 processes 1 rates [0.8, 0.7, 0.6, 0.5, 0.4]
accelerate 1.15.0 processes 2 rates [0.8, 0.6, 0.4, 0.2, 0.0]
END
)
seen=$(
  export GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
  for processes in 1 2; do
    venv/bin/torchrun --standalone --nproc-per-node "$processes" probe.py 2>errors || cat errors
  done
)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
