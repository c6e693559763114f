"""torchrun, on several nodes: it says which nodes did not come.

torchrun's rendezvous counts the launchers that joined and names none of them. Here each launcher leaves a file as soon
as torch is imported, which may take minutes over a shared filesystem. The first one, which waits for the others, names
the nodes without such a file.

Run: srun --ntasks-per-node=1 python training/src/launcher.py OPTIONS OF torchrun (RUN_DIR and Slurm's variables set)
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from recipe import rank  # first: it makes the probes importable

# isort: split
from arrival import MOST_NAMED, nodes_of_the_step
from imports import large_imports

with large_imports():
    import torch.distributed as dist
    from torch.distributed.run import main


def launch() -> None:
    started = Path(os.environ["RUN_DIR"], "raw/launchers")
    started.mkdir(exist_ok=True)
    (started / rank.node_name()).touch()
    try:
        main()
    except dist.DistStoreError as error:
        missing = [node for node in nodes_of_the_step() if not (started / node).exists()]
        if missing:
            print(f"{late(missing, len(nodes_of_the_step()))} ({str(error).splitlines()[0]})", file=sys.stderr)
            sys.exit(1)
        raise


def late(missing: list[str], nodes: int) -> str:
    """One line, as validation/bringup/evidence/launcher.py reads it."""
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    return (
        f"{len(missing)} of {nodes} launchers did not start in time: {', '.join(missing[:MOST_NAMED])}{more}; "
        "BRINGUP_START_S sets how long to wait"
    )


if __name__ == "__main__":
    launch()
