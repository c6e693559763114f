#!/usr/bin/env python3
"""Run a command whose Pythons see the stand-in's CUDA devices, without a cluster.

    python tests/cuda/on_stand_in.py [--gpus 1] [--lines FOLDER] [--set KEY=VALUE ...] COMMAND ...

Its library is built once (cuda_stand_in/build.py). The GPUs are those of a simulated H100 node that has just booted;
--set changes a key of its state file (simulated/traits/cuda.conf). --lines: which lines ran goes to FOLDER.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SIMULATED = ROOT / "infrastructure-validation/local-cluster/simulated"
BUILD = SIMULATED / "cuda/cuda_stand_in/build.py"
START = """\
import sys
sys.path.append({stand_in!r})
import cuda_stand_in
cuda_stand_in.install({library!r})
sys.path.remove({here!r})  # Python runs only the first file of this name: a drill has one, too
own = sys.modules.pop("sitecustomize")
try:
    import sitecustomize
except ImportError:
    sys.modules["sitecustomize"] = own
"""


def variables(folder: Path, gpus: int, changes: list[str], lines: Path | None = None) -> dict[str, str]:
    """The environment of such a command. `folder` is its own, absolute, and gets what it needs."""
    sys.path.append(str(SIMULATED))
    import state

    built = subprocess.run([sys.executable, BUILD], capture_output=True, text=True, check=False)
    if built.returncode:
        sys.exit(built.stderr.strip())
    healthy = state.healthy("h100+cuda", "n0", gpus) + "devices=all\n"
    (folder / "state.conf").write_text(state.changed(healthy, changes))
    start = START.format(stand_in=str(SIMULATED / "cuda"), library=built.stdout.strip(), here=str(folder))
    (folder / "sitecustomize.py").write_text(start)
    behind = os.environ.get("PYTHONPATH")
    chosen = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    chosen["PYTHONPATH"] = str(folder) + (f":{behind}" if behind else "")
    chosen["BRINGUP_SIMULATED_STATE"] = str(folder / "state.conf")
    return chosen | ({"BRINGUP_LINES": str(lines.resolve())} if lines else {})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--lines", type=Path)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bringup-cuda-") as folder:
        environment = variables(Path(folder).resolve(), chosen.gpus, chosen.set, chosen.lines)
        return subprocess.run(chosen.command, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
