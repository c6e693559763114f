#!/usr/bin/env bash
# A NaN check of a sharded tensor answers for the rank's own shard
#
# One would guess: that .item(), float() and if of a reduced DTensor, as isnan(weight).any() of a model under
# fully_shard, give the value of the whole tensor.
#
# What happens: they give what the rank's own shard holds, without a word: the rank beside the one with the NaN
# goes on, sum().item() is a share of the sum, and ranks that branch on it part ways. var().item() is right, by
# chance of its implementation.
#
# Why: such a result is Partial (each rank holds its part), and _sharding_prop.py lets _local_scalar_dense, on
# which .item() rests, through as a special case without a redistribution; only the placements show it.
#
# What to do: call full_tensor() before item(), on all ranks. clip_grad_norm_ of 2.13 returns a Replicate norm,
# which is safe.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6

cat > probe.py <<'END'
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (2,))


def show(name: str, value: torch.Tensor) -> None:
    """Print what .item() gives on each rank, and the value of the whole tensor."""
    items = [None, None]
    dist.all_gather_object(items, value.item())
    whole = value.full_tensor().item()
    if dist.get_rank() == 0:
        print(f"{name}: item() {items}, full_tensor().item() {whole}")


if dist.get_rank() == 0:
    print("torch", torch.__version__.split("+")[0])
weight = distribute_tensor(torch.tensor([1.0, 2.0, 3.0, 4.0]), mesh, [Shard(0)])
show("sum", weight.sum())
show("max", weight.max())
show("var", weight.square().var())
ruined = distribute_tensor(torch.tensor([1.0, 2.0, 3.0, float("nan")]), mesh, [Shard(0)])
show("any NaN", torch.isnan(ruined).any())
show("all finite", torch.isfinite(ruined).all())
dist.destroy_process_group()
END

expected=$(
  cat <<'END'
torch 2.13.0
sum: item() [3.0, 7.0], full_tensor().item() 10.0
max: item() [2.0, 4.0], full_tensor().item() 4.0
var: item() [43.0, 43.0], full_tensor().item() 43.0
any NaN: item() [False, True], full_tensor().item() True
all finite: item() [True, False], full_tensor().item() False
END
)
seen=$(
  export GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
  venv/bin/torchrun --standalone --nproc-per-node 2 probe.py 2>errors || cat errors
)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
