#!/usr/bin/env python3
"""How fast are the results folder's bytes and names from this node? All nodes at once, unless the step has one task.

Bytes: one file, written in blocks and synced, then dropped from this node's cache and read back. Names: files made, looked at
and removed, one after the other. Says nothing about many clients per node, direct I/O, or a filesystem that is nearly full.
Run: srun --label --ntasks-per-node=1 python3 storage.py FOLDER MIB alone|together
"""

import os
import sys
import time
from pathlib import Path

import faults
from facts import Facts

BLOCK = 2**20
FILES = 100
SLOW_S = 0.2  # the drill: per block and per file


def main():
    if len(sys.argv) != 4 or not sys.argv[2].isdigit() or sys.argv[3] not in ("alone", "together"):
        sys.exit("usage: storage.py FOLDER MIB alone|together")
    facts = Facts(f"storage_{sys.argv[3]}")
    folder, blocks, prefix = Path(sys.argv[1]), int(sys.argv[2]), f"smoke.storage.{sys.argv[3]}"
    subject = "job" if sys.argv[3] == "alone" else facts.at
    pause = SLOW_S if faults.hits("slow-storage", facts.at) else 0.0
    file = folder / f"{facts.at}.{sys.argv[3]}.bytes"
    try:
        written = rate(blocks, lambda: write(file, blocks, pause))
        read_back = rate(blocks, lambda: read(file, blocks, pause))
        facts.saw(f"{prefix}.write", written, "GB/s", subject, f"{blocks} MiB from {facts.at}")
        facts.saw(f"{prefix}.read", read_back, "GB/s", subject, f"{blocks} MiB to {facts.at}")
        if sys.argv[3] == "together":
            facts.saw("smoke.storage.files", round(names(folder, facts.at, pause), 1), "1/s", remark=f"{FILES} files")
    except OSError as error:
        facts.unknown(f"{prefix}.write", "GB/s", str(error), subject)
    finally:
        file.unlink(missing_ok=True)
    facts.finish()


def rate(blocks, work):
    begun = time.monotonic()
    work()
    return round(blocks * BLOCK / 1e9 / (time.monotonic() - begun), 4)


def write(file, blocks, pause):
    data = os.urandom(BLOCK)  # what cannot be compressed
    with file.open("wb") as stream:
        for _ in range(blocks):
            stream.write(data)
            time.sleep(pause)
        stream.flush()
        os.fsync(stream.fileno())


def read(file, blocks, pause):
    with file.open("rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for _ in range(blocks):
            if len(stream.read(BLOCK)) != BLOCK:
                raise OSError(f"{file} is shorter than what was written")
            time.sleep(pause)


def names(folder, node, pause):
    """Files per second: each made, looked at and removed."""
    begun = time.monotonic()
    for index in range(FILES):
        path = folder / f"{node}.{index}.name"
        path.touch()
        path.stat()
        path.unlink()
        time.sleep(pause / 2)
    return FILES / (time.monotonic() - begun)


if __name__ == "__main__":
    main()
