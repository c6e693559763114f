#!/usr/bin/env bash
# To read an evaluation set without shuffling changes the random numbers of the training
#
# One would guess: that a DataLoader that does not shuffle draws nothing, so that a run that evaluates trains bit
# by bit as one that does not.
#
# What happens: each iteration over a DataLoader moves torch's global generator: dropout, and every later shuffle,
# is another one. Two runs that differ in how often they evaluate, or of which one resumed after an evaluation,
# are not the same.
#
# Why: the iterator draws a base seed for workers from the loader's generator, the global one by default, even
# with num_workers=0 (_BaseDataLoaderIter in torch/utils/data/dataloader.py).
#
# What to do: give the loader of the evaluation a generator of its own.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6

cat > probe.py <<'END'
import torch
from torch.utils.data import DataLoader


def after(loader: DataLoader | None) -> float:
    """Return the first random number after one pass of the loader."""
    torch.manual_seed(0)
    for _ in loader or ():
        pass
    return round(torch.rand(1).item(), 4)


print("torch", torch.__version__.split("+")[0])
print("no evaluation:", after(None))
print("evaluation:", after(DataLoader(list(range(8)), batch_size=4, shuffle=False)))
own = torch.Generator()
print("evaluation, own generator:", after(DataLoader(list(range(8)), batch_size=4, shuffle=False, generator=own)))
END

expected=$(
  cat <<'END'
torch 2.13.0
no evaluation: 0.4963
evaluation: 0.0885
evaluation, own generator: 0.4963
END
)
seen=$(venv/bin/python probe.py 2>errors || cat errors)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
