#!/usr/bin/env bash
# dist.reduce over gloo overwrites the tensors of the ranks that only send
#
# One would guess: that only rank dst gets a result, as the documentation says, and that the others keep what they
# gave.
#
# What happens: the others are left with partial sums: 1, 2, 3, 4 reduced to rank 0 become 10, 9, 7, 4, so that a
# loss that each rank logs after the reduction is too high by another factor on each.
#
# Why: gloo reduces in place on the way to dst, and ProcessGroupGloo hands it the caller's tensor as its buffer.
#
# What to do: reduce a clone, or use all_reduce; do not read the tensor again on a rank that is not dst.
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
loss = torch.tensor([dist.get_rank() + 1.0])
dist.reduce(loss, dst=0)
left = [None] * 4
dist.all_gather_object(left, loss.item())
if dist.get_rank() == 0:
    print("torch", torch.__version__.split("+")[0])
    print("before [1.0, 2.0, 3.0, 4.0], after", left)
dist.destroy_process_group()
END

expected=$(
  cat <<'END'
torch 2.13.0
before [1.0, 2.0, 3.0, 4.0], after [10.0, 9.0, 7.0, 4.0]
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
