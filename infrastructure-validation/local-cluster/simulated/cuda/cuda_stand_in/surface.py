"""Which names the CUDA build of torch has in its C modules, and the CPU build has not: surface.json.

    CPU_PYTHON surface.py CUDA_PYTHON >surface.json

Each Python has one of the two builds of the same torch. The CUDA build needs no GPU to say its names.
"""

from __future__ import annotations

import json
import subprocess
import sys

MODULES = ("torch._C", "torch._C._distributed_c10d")
ASK = f"""
import importlib, json, torch, types
def kind(thing):
    return "module" if isinstance(thing, types.ModuleType) else "type" if isinstance(thing, type) else "function"
names = {{}}
for name in {MODULES}:
    module = importlib.import_module(name)
    names[name] = {{part: kind(getattr(module, part)) for part in dir(module)}}
print(json.dumps(dict(torch=torch.__version__.split("+")[0], names=names)))
"""


def main() -> None:
    here, there = (json.loads(subprocess.check_output([python, "-c", ASK])) for python in (sys.executable, sys.argv[1]))
    if here["torch"] != there["torch"]:
        sys.exit(f"the CPU build is torch {here['torch']}, the CUDA build {there['torch']}")
    there["names"] = {
        module: {name: kind for name, kind in sorted(names.items()) if name not in here["names"][module]}
        for module, names in there["names"].items()
    }
    print(json.dumps(there, indent=1))


if __name__ == "__main__":
    main()
