"""A user's job that ends, or stands still, for a known reason: standard library only. `why_program.py KIND`"""

import ctypes
import errno
import os
import socket
import sys
import time
from pathlib import Path

RANK, RANKS = int(os.environ["SLURM_PROCID"]), int(os.environ["SLURM_NTASKS"])
CULPRIT = 2  # the first rank of the second node
WATCHDOG = (
    "[rank{rank}]:[E1120 08:00:00.123456789 ProcessGroupNCCL.cpp:616] [Rank {rank}] Watchdog caught collective "
    "operation timeout: WorkNCCL(SeqNum=38, OpType=ALLREDUCE, NumelIn=16777216, NumelOut=16777216, Timeout(ms)=2000) "
    "ran for 2004 milliseconds before timing out."
)


def load_batch(number):
    raise ValueError(f"batch {number} has 3 columns, expected 4")


def wait_for_data():
    time.sleep(3600)


def work(seconds):
    for step in range(seconds):
        time.sleep(1)
        if RANK == 0:
            print(f"step {step} loss {3 / (1 + step):.3f}", flush=True)


def main(kind):
    is_culprit = RANK == CULPRIT
    print(f"rank {RANK} of {RANKS} begins", flush=True)
    if kind == "import":
        import tables_of_the_user  # noqa: F401
    elif kind == "raise":
        time.sleep(1)
        if is_culprit:
            load_batch(7)
    elif kind == "memory" and is_culprit:
        held = bytearray(2 << 30)
        held[:: 1 << 12] = b"x" * len(held[:: 1 << 12])
    elif kind == "watchdog" and not is_culprit:
        time.sleep(2)
        print(WATCHDOG.format(rank=RANK), file=sys.stderr, flush=True)
        time.sleep(2)
        os.abort()
    elif kind == "disk" and is_culprit:
        Path("/mnt/checkpoint").write_bytes(bytes(4 << 20))
    elif kind == "segfault" and is_culprit:
        ctypes.string_at(0)
    elif kind == "port" and RANK in (0, 1):
        listener = socket.socket()
        time.sleep(RANK)
        listener.bind(("", 29417))
        listener.listen()
    elif kind == "quiet" and is_culprit:
        sys.exit(7)
    elif kind == "cuda" and is_culprit:
        raise RuntimeError("CUDA error: unspecified launch failure")
    elif kind == "permission" and is_culprit:
        raise PermissionError(errno.EACCES, "Permission denied", "/data/shard-17")
    elif kind == "stalled" and is_culprit:
        wait_for_data()
    work({"well": 2, "stalled": 3}.get(kind, 600))
    if kind == "stalled":
        time.sleep(3600)


main(sys.argv[1])
