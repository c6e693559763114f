#!/usr/bin/env bash
# datasets gives the rows of before an edit, if the function was imported
#
# One would guess: that map() runs again when the code of its function has changed, as its fingerprint is made of
# the function.
#
# What happens: it does so for a function of the script that runs; for one that is imported from a module it takes
# the rows of the old code from the cache, without a word.
#
# Why: an importable function is pickled for the fingerprint by its name, not by its code.
#
# What to do: put a version of the preprocessing into fn_kwargs or new_fingerprint, or set
# load_from_cache_file=False after an edit.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile datasets==5.2.0

cat > rows.jsonl <<'END'
{"text": "aa"}
{"text": "bbb"}
END

cat > probe.py <<'END'
import sys

sys.dont_write_bytecode = True

import datasets
import preparation

datasets.disable_progress_bars()


def of_script(row: dict) -> dict:
    return {"length": len(row["text"]) * 1}


rows = datasets.load_dataset("json", data_files="rows.jsonl", split="train", cache_dir="cache")
print("datasets", datasets.__version__)
print("of the script:", rows.map(of_script)["length"][:], "imported:", rows.map(preparation.imported)["length"][:])
END

cat > preparation.py <<'END'
def imported(row: dict) -> dict:
    return {"length": len(row["text"]) * 1}
END

expected=$(
  cat <<'END'
datasets 5.2.0
of the script: [2, 3] imported: [2, 3]
datasets 5.2.0
of the script: [200, 300] imported: [2, 3]
END
)
seen=$(
  export HF_HUB_OFFLINE=1 HF_HOME="$folder/home"
  venv/bin/python probe.py 2>errors || cat errors
  sed -i 's/ \* 1/ * 100/' probe.py preparation.py
  venv/bin/python probe.py 2>errors || cat errors
)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
