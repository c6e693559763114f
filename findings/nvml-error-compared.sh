#!/usr/bin/env bash
# An error of NVML's Python package cannot be compared, nor be a key
#
# One would guess: that NVMLError is an exception like others: == with something else is False, `error in known` works,
# a set or a dictionary of counts takes it.
#
# What happens: == and != read .value of the other side and raise AttributeError where it has none; so does `in`.
# hash() raises TypeError. Only two errors of NVML are compared, by their code, whatever their class.
#
# Why: NVMLError in pynvml.py defines __eq__ without a look at the other's type, and no __hash__, so Python removes it.
#
# What to do: compare error.value with NVML_ERROR_...; count by error.value or str(error).
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
venv/bin/pip install --quiet --no-compile nvidia-ml-py==13.615.71

cat > probe.py <<'END'
from importlib.metadata import version

import pynvml

print("nvidia-ml-py", version("nvidia-ml-py"))
lost = pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
for what, ask in {
    "lost == None": lambda: lost == None,
    "lost != 'GPU is lost'": lambda: lost != "GPU is lost",
    "lost in [ValueError()]": lambda: lost in [ValueError()],
    "{lost}": lambda: {lost},
    "lost == another one": lambda: lost == pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST),
    "lost.value": lambda: lost.value,
}.items():
    try:
        print(what, "->", ask())
    except (AttributeError, TypeError) as error:
        print(what, "->", f"{type(error).__name__}: {error}")
END

expected=$(
  cat <<'END'
nvidia-ml-py 13.615.71
lost == None -> AttributeError: 'NoneType' object has no attribute 'value'
lost != 'GPU is lost' -> AttributeError: 'str' object has no attribute 'value'
lost in [ValueError()] -> AttributeError: 'ValueError' object has no attribute 'value'
{lost} -> TypeError: unhashable type: 'NVMLError_GpuIsLost'
lost == another one -> True
lost.value -> 15
END
)
seen=$(venv/bin/python probe.py)
if [ "$seen" != "$expected" ]; then
  printf 'changed, now:\n%s\n' "$seen"
  exit 1
fi
printf 'seen:\n%s\n' "$seen"
