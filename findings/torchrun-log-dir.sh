#!/usr/bin/env bash
# torchrun --log-dir alone writes no log
#
# One would guess: that --log-dir keeps what the processes print in that folder.
#
# What happens: it makes a folder per attempt and local rank and leaves each empty; with --redirects or --tee the
# same folders get stdout.log and stderr.log. After a job that was started with --log-dir only, nothing is left to
# read.
#
# Why: --log-dir is where the two others write; without them DefaultLogsSpecs redirects nothing.
#
# What to do: add --tee 3, or --redirects 3; ranks in the paths are local ones, and a random name stands between,
# so keep one folder per node.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile torch==2.13.0 numpy==2.4.6

cat > probe.py <<'END'
print("hello")
END

expected=$(
  cat <<'END'
torch 2.13.0
--log-dir : 2 folders of ranks, 0 files
--log-dir --redirects=3: 2 folders of ranks, 4 files
--log-dir --tee=3: 2 folders of ranks, 4 files
END
)
seen=$(
  venv/bin/python -c 'import torch; print("torch", torch.__version__.split("+")[0])'
  for option in "" --redirects=3 --tee=3; do
    rm -rf logs
    # shellcheck disable=SC2086  # an empty option must not become a word
    venv/bin/torchrun --standalone --nproc-per-node 2 --log-dir logs $option probe.py >output 2>errors
    folders=$(find logs -type d -name '[01]' | wc -l)
    echo "--log-dir $option: $folders folders of ranks, $(find logs -type f | wc -l) files"
  done
)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
