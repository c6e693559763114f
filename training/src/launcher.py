"""torchrun, which says which nodes did not come, and says nothing where ranks have said it: they refused what they were
given, each with exit code 2, and so it ends.

torchrun's rendezvous counts the launchers that joined and names none of them. Here each launcher leaves a file as soon
as torch is imported, which may take minutes over a shared filesystem. The first one, which waits for the others, names
the nodes without such a file.

Run: srun --ntasks-per-node=1 python training/src/launcher.py OPTIONS OF torchrun (RUN_DIR and Slurm's variables set; on
one node also without Slurm)

SIGTERM makes RUN_DIR/stop, at which the ranks write a checkpoint: torchrun would end them. Slurm may send it to all
processes of a step, so ranks do not end at it (recipe/program.py). At SIGHUP they do: it takes that.
"""

import logging
import os
import signal
import sys
from pathlib import Path

from recipe import rank  # first: it makes the probes importable

# isort: split
from arrival import MOST_NAMED, nodes_of_the_step
from imports import large_imports

with large_imports():
    import torch.distributed as dist
    from torch.distributed.elastic.multiprocessing import PContext
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

REFUSED = 2  # exit code of a rank


def launch() -> None:
    started = Path(os.environ["RUN_DIR"], "raw/launchers")
    started.mkdir(parents=True, exist_ok=True)
    (started / rank.node_name()).touch()
    of_ranks = logging.getLogger("torch.distributed.elastic.multiprocessing.api")
    of_ranks.addFilter(lambda message: f"(exitcode: {REFUSED})" not in message.getMessage())
    signal.signal(signal.SIGTERM, lambda *_: Path(os.environ["RUN_DIR"], rank.STOP).touch())
    os.environ[rank.SAVES_AT_SIGTERM] = "1"
    sys.argv[1:1] = ["--signals-to-handle", "SIGINT,SIGHUP,SIGQUIT"]
    close = PContext.close
    PContext.close = lambda self, death_sig=None, timeout=30: close(self, signal.SIGHUP, timeout)  # type: ignore[method-assign]
    try:
        main()
    except ChildFailedError as error:
        codes = {failure.exitcode for failure in error.failures.values()}
        if REFUSED in codes and codes <= {REFUSED, -signal.SIGTERM, -signal.SIGHUP}:  # torchrun ended the others
            sys.exit(REFUSED)
        raise
    except dist.DistStoreError as error:
        missing = [node for node in nodes_of_the_step() if not (started / node).exists()]
        if missing:
            print(f"{late(missing, len(nodes_of_the_step()))} ({str(error).splitlines()[0]})", file=sys.stderr)
            sys.exit(1)
        raise


def late(missing: list[str], nodes: int) -> str:
    """Write a line, as validation/bringup/readers/launcher.py reads it."""
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    return (
        f"{len(missing)} of {nodes} launchers did not start in time: {', '.join(missing[:MOST_NAMED])}{more}; "
        "BRINGUP_START_S sets how long to wait"
    )


if __name__ == "__main__":
    launch()
