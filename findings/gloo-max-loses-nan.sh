#!/usr/bin/env bash
# all_reduce with MAX over gloo loses the NaN of every rank but the first
#
# One would guess: that the largest of values one of which is NaN is NaN on every rank, as torch.max says.
#
# What happens: it is NaN only where rank 0 has it; a NaN of another rank is gone on all ranks, its own too. MIN
# does the same, SUM keeps it.
#
# Why: gloo/math.h takes std::max(a, b), which gives a unless b is greater, and NaN never is; the order in which
# ranks come is that of its algorithm.
#
# What to do: do not look for a broken rank in the maximum of a loss or a norm over gloo: reduce a flag (not
# isfinite) with MAX, or use SUM.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6

cat > probe.py <<'END'
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
if rank == 0:
    print("torch", torch.__version__.split("+")[0])
for broken in range(ranks):
    for operation in ("MAX", "MIN", "SUM"):
        loss = torch.tensor(float("nan") if rank == broken else 2.0)
        dist.all_reduce(loss, getattr(dist.ReduceOp, operation))
        results = [None] * ranks
        dist.all_gather_object(results, loss.item())
        if rank == 0:
            print(f"NaN on rank {broken}, {operation}: {results}")
dist.destroy_process_group()
END

expected=$(
  cat <<'END'
torch 2.13.0
NaN on rank 0, MAX: [nan, nan]
NaN on rank 0, MIN: [nan, nan]
NaN on rank 0, SUM: [nan, nan]
NaN on rank 1, MAX: [2.0, 2.0]
NaN on rank 1, MIN: [2.0, 2.0]
NaN on rank 1, SUM: [nan, nan]
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
