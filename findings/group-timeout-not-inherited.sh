#!/usr/bin/env bash
# The timeout of init_process_group does not hold for groups made later
#
# One would guess: that new_group and the groups of a DeviceMesh wait as long as init_process_group was told to.
#
# What happens: they take the backend's default (30 minutes for gloo), where the first group gives up after the 3
# seconds it was given; only a dimension of a mesh that holds all ranks is the first group itself and keeps its
# value. A hang in a shard group is thus seen late, and a timeout that was raised for slow storage does not
# protect such a group.
#
# Why: new_group and split_group without a timeout ask _get_default_timeout for the backend's
# (distributed_c10d.py).
#
# What to do: give new_group a timeout, and init_device_mesh a backend_override with options; then look at what
# the groups have.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6

cat > probe.py <<'END'
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh

dist.init_process_group("gloo", timeout=timedelta(seconds=3))
rank = dist.get_rank()
whole = init_device_mesh("cpu", (4,), mesh_dim_names=("shard",))
hybrid = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
if rank == 0:
    print("torch", torch.__version__.split("+")[0])
for name, group in (
    ("new_group", dist.new_group([0, 1])),
    ("mesh of 2 x 2", hybrid.get_group("shard")),
    ("mesh of 4", whole.get_group()),
):
    is_member = rank in dist.get_process_group_ranks(group)
    if rank in (1, 3) or not is_member:
        time.sleep(6)  # twice the timeout; of each pair one is late
    if not is_member:
        continue
    try:
        dist.all_reduce(torch.ones(1), group=group)
        answer = "waited 6 s"
    except RuntimeError:
        answer = "gave up"
    if rank == 0:
        print(f"{name}: {answer}", flush=True)
END

expected=$(
  cat <<'END'
torch 2.13.0
new_group: waited 6 s
mesh of 2 x 2: waited 6 s
mesh of 4: gave up
END
)
seen=$(
  export GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
  venv/bin/torchrun --standalone --nproc-per-node 4 probe.py 2>errors || cat errors
)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
