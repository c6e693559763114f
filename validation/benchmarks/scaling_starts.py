#!/usr/bin/env python3
"""How long nccl_scaling takes on a local cluster of 2 nodes with 2 GPUs, in one start of all ranks and before.

    python validation/benchmarks/scaling_starts.py [PAIRS [CHECKOUT [COMMAND…]]]

CHECKOUT: the build to compare with, with a .venv of its own; without one, this build with a start for each scale
(BRINGUP_SCALES=apart). COMMAND: what to measure instead: `.venv/bin/bringup run` for all phases. Runs take turns.
Prints a line for each run and the ratios of the pairs; CPU seconds, where the machine has cgroup v1, of all processes.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "infrastructure-validation/local-cluster/cluster"
SCALING = ["bash", "infrastructure-validation/scripts/nccl_scaling.sh", "--nodes", "2"]
ACCOUNT = Path("/sys/fs/cgroup/cpuacct")


def counted() -> Path | None:
    """A cgroup with this process, and all that it starts from now on. None: there is no cgroup v1."""
    if not (ACCOUNT / "cgroup.procs").exists():
        return None
    folder = ACCOUNT / f"bringup-scaling-{os.getpid()}"
    folder.mkdir()
    (folder / "cgroup.procs").write_text(str(os.getpid()))
    return folder


def cpu_s(account: Path | None) -> float:
    return int((account / "cpuacct.usage").read_text()) / 1e9 if account else 0.0


def measured(checkout: Path, environment: dict[str, str], account: Path | None, *command: str) -> tuple[float, float]:
    """Seconds and CPU seconds of a healthy run of the command."""
    begun, cpu = time.monotonic(), cpu_s(account)
    environment = environment | {"BRINGUP_RUN_NAME": f"starts-{time.monotonic_ns()}"}
    subprocess.run([f"{ROOT}/{CLUSTER}", "sh", *command], cwd=checkout, env=environment, check=True)
    return time.monotonic() - begun, cpu_s(account) - cpu


def main() -> None:
    pairs, before = int(sys.argv[1]) if len(sys.argv) > 1 else 3, Path(*sys.argv[2:3] or [str(ROOT)])
    command = sys.argv[3:] or SCALING
    account = counted()
    with tempfile.TemporaryDirectory(prefix="bringup-scaling-", dir="/tmp") as folder:
        Path(folder).chmod(0o711)  # jobs of other users
        now = os.environ | {"BRINGUP_CLUSTER": f"{folder}/cluster"}
        then = now | {"BRINGUP_SCALES": "apart"}
        subprocess.run([ROOT / CLUSTER, "up"], env=now, check=True)
        try:
            ratios = []
            for pair in range(pairs):
                old_first = pair % 2 == 0
                order = [(before, then), (ROOT, now)]
                both = [measured(*run, account, *command) for run in (order if old_first else order[::-1])]
                both = both if old_first else both[::-1]
                ratios.append([new / old if old else 0.0 for old, new in zip(*both, strict=True)])
                words = ", ".join(f"{wall:.1f} s with {cpu:.1f} CPU s" for wall, cpu in both)
                print(f"pair {pair + 1}, load {os.getloadavg()[0]:.1f}: before and now {words}", flush=True)
            for name, ratio in zip(("time", "CPU time"), zip(*ratios, strict=True), strict=True):
                print(
                    f"{name}: now / before {statistics.median(ratio):.2f} (from {min(ratio):.2f} to {max(ratio):.2f})"
                )
        finally:
            subprocess.run([ROOT / CLUSTER, "down"], env=now, check=True)
            if account:
                (ACCOUNT / "cgroup.procs").write_text(str(os.getpid()))


if __name__ == "__main__":
    main()
