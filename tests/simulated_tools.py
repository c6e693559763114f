"""The stand-ins of programs for GPUs and networks, on the PATH of a test, with a state of its own."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PROBES = ROOT / "infrastructure-validation/probes"
STAND_INS = ROOT / "infrastructure-validation/local-cluster/simulated/bin"


def on_path(place: Path, **state: str) -> dict[str, str]:
    """The environment in which the stand-ins are found. `_` of a key is written `.`: dcgm_memory="fail:gpu3"."""
    place.mkdir(parents=True, exist_ok=True)
    file = place / "state.conf"
    file.write_text("".join(f"{key.replace('_', '.', 1)}={value}\n" for key, value in state.items()))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "BRINGUP", "NCCL"))}
    path = f"{STAND_INS}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return kept | {"PATH": path, "BRINGUP_SIMULATED_STATE": str(file)}
