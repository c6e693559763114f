#!/usr/bin/env bash
# With an IterableDataset accelerate lets rank 0 read the data of all ranks
#
# One would guess: that each rank reads its own share from the storage, as with a Dataset of known length.
#
# What happens: rank 0 reads every row and sends the others theirs; they never call the dataset. One process's
# reading, decoding and CPU limit all GPUs, and a test of the storage from all nodes says nothing about it.
#
# Why: dispatch_batches is True by default for an IterableDataset (prepare_data_loader in
# accelerate/data_loader.py).
#
# What to do: give DataLoaderConfiguration(dispatch_batches=False), and let the dataset split itself by rank.
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
from accelerate.utils import gather_object
from torch.utils.data import DataLoader, Dataset, IterableDataset

read = {"rows": 0}


class Stream(IterableDataset):
    """16 rows in order."""

    def __iter__(self):
        for row in range(16):
            read["rows"] += 1
            yield torch.tensor([row])


class Table(Dataset):
    """16 rows by number."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, row: int) -> torch.Tensor:
        read["rows"] += 1
        return torch.tensor([row])


accelerator = Accelerator(cpu=True)
if accelerator.is_main_process:
    print("accelerate", version("accelerate"))
for dataset in (Table(), Stream()):
    read["rows"] = 0
    used = sum(len(batch) for batch in accelerator.prepare(DataLoader(dataset, batch_size=2)))
    counts = gather_object([(read["rows"], used)])
    if accelerator.is_main_process:
        print(type(dataset).__name__, "rows read and used by each rank:", counts)
accelerator.end_training()
END

expected=$(
  cat <<'END'
accelerate 1.15.0
Table rows read and used by each rank: [(8, 8), (8, 8)]
Stream rows read and used by each rank: [(16, 8), (0, 8)]
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
