#!/usr/bin/env bash
# One shard too many, and every rank of datasets reads the whole dataset
#
# One would guess: that split_dataset_by_node gives 9 shards to 2 ranks as 5 and 4.
#
# What happens: with 8 shards each rank opens 4; with 9 each opens all 9 and throws half of the rows away, so that
# the storage has to deliver the data once for each rank, 64 times on 64 GPUs.
#
# Why: its default strategy, auto, takes shards only if their number is a multiple of the number of ranks, and
# rows otherwise; the documentation says so, and no warning comes.
#
# What to do: write a number of shards that all numbers of ranks in use divide, or ask for strategy="shards" and
# accept ranks that end early.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile datasets==5.2.0

cat > probe.py <<'END'
import datasets
from datasets.distributed import split_dataset_by_node

opened = []


def rows(shards: list[int]):
    """Yield two rows of each shard."""
    for shard in shards:
        opened.append(shard)
        yield {"shard": shard, "row": 0}
        yield {"shard": shard, "row": 1}


print("datasets", datasets.__version__)
for shards in (8, 9):
    stream = datasets.IterableDataset.from_generator(rows, gen_kwargs={"shards": list(range(shards))})
    for rank in range(2):
        opened.clear()
        got = sum(1 for _ in split_dataset_by_node(stream, rank=rank, world_size=2))
        print(f"{shards} shards, rank {rank} of 2: opened {len(opened)}, rows {got}")
END

expected=$(
  cat <<'END'
datasets 5.2.0
8 shards, rank 0 of 2: opened 4, rows 8
8 shards, rank 1 of 2: opened 4, rows 8
9 shards, rank 0 of 2: opened 9, rows 9
9 shards, rank 1 of 2: opened 9, rows 9
END
)
seen=$(
  export HF_HUB_OFFLINE=1 HF_HOME="$folder/home"
  venv/bin/python probe.py 2>errors || cat errors
)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
