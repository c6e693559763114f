#!/usr/bin/env python3
"""Run a command whose Pythons see the stand-in's CUDA devices, without a cluster.

    python infrastructure-validation/local-cluster/simulated/cuda/on_stand_in.py \
        [--gpus 1] [--nodes 1] [--ranks R] [--set KEY=VALUE ...] COMMAND ...

Its library is built once (cuda_stand_in/build.py). The GPUs are those of a simulated H100 node that has just booted;
--set changes a key of its state file (simulated/traits/cuda.conf). --ranks: COMMAND is started so many times for each
node, with what srun and torchrun say to a rank; when one fails, the others are ended.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
SIMULATED = HERE.parent
BUILD = HERE / "cuda_stand_in/build.py"
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


GRACE_S = 10  # of the ranks beside one that failed, to say why themselves


def variables(folder: Path, gpus: int, changes: Sequence[str] = (), node: str = "n0") -> dict[str, str]:
    """The environment of such a command. `folder` is its own, absolute, and gets what it needs."""
    sys.path.append(str(SIMULATED))
    import state

    built = subprocess.run([sys.executable, BUILD], capture_output=True, text=True, check=False)
    if built.returncode:
        sys.exit(built.stderr.strip())
    healthy = state.healthy("h100+cuda", node, gpus) + "devices=all\n"
    (folder / "state.conf").write_text(state.changed(healthy, changes))
    start = START.format(stand_in=str(HERE), library=built.stdout.strip(), here=str(folder))
    (folder / "sitecustomize.py").write_text(start)
    behind = os.environ.get("PYTHONPATH")
    chosen = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    chosen["PYTHONPATH"] = str(folder) + (f":{behind}" if behind else "")
    chosen.setdefault("OMP_NUM_THREADS", "1")  # as training/env.sh; two threads on busy cores take four times as long
    return chosen | {"BRINGUP_SIMULATED_STATE": str(folder / "state.conf")}


def said_to_rank(node: int, local: int, nodes: int, ranks: int, port: int) -> dict[str, str]:
    """What srun and torchrun tell rank `local` of a node of so many ranks."""
    rank, world, name = node * ranks + local, nodes * ranks, f"n{node}"
    of_slurm = {"PROCID": rank, "LOCALID": local, "NTASKS": world, "NTASKS_PER_NODE": ranks, "NODEID": node}
    of_torchrun = {"RANK": rank, "LOCAL_RANK": local, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": ranks}
    words = {f"SLURM_{key}": value for key, value in of_slurm.items()} | of_torchrun
    words |= {"SLURM_STEP_NUM_NODES": nodes, "SLURMD_NODENAME": name, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    return {key: str(value) for key, value in words.items()} | {"GLOO_SOCKET_IFNAME": "lo"}


def together(started: Sequence[subprocess.Popen[bytes]]) -> int:
    """Until all have ended. The first exit code that is not 0."""
    failed, until = 0, float("inf")
    while any(rank.poll() is None for rank in started):
        if not failed and any(rank.returncode for rank in started):
            failed, until = next(rank.returncode for rank in started if rank.returncode), time.monotonic() + GRACE_S
        for rank in started:
            if rank.poll() is None and time.monotonic() > until:
                rank.kill()
        time.sleep(0.05)
    return failed or next((rank.returncode for rank in started if rank.returncode), 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=1, help="of each node")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--ranks", type=int, help="of each node")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("command", nargs=argparse.REMAINDER)
    chosen = parser.parse_args()
    if chosen.nodes > 1 and not chosen.ranks:
        parser.error("--nodes wants --ranks: by itself a command is started once")
    with tempfile.TemporaryDirectory(prefix="bringup-cuda-") as folder:
        port = 10_000 + os.getpid() % 10_000  # none of those that Linux hands out by itself
        environments = []
        for node in range(chosen.nodes):
            own = Path(folder).resolve() / f"n{node}"
            own.mkdir()
            environment = variables(own, chosen.gpus, chosen.set, own.name)
            several = [
                said_to_rank(node, local, chosen.nodes, chosen.ranks, port) for local in range(chosen.ranks or 0)
            ]
            environments += [environment | of_rank for of_rank in several] or [environment]
        return together([subprocess.Popen(chosen.command, env=environment) for environment in environments])


if __name__ == "__main__":
    sys.exit(main())
