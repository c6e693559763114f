#!/usr/bin/env python3
"""How fast are the results folder's bytes and names from this node? All nodes at once, unless the step has one task.

Bytes: one file, written in blocks and synced, then read back past this node's cache (O_DIRECT); where the filesystem
takes no direct I/O, dropped from the cache and read, which a client may still answer from memory: the fact says so.
By fio where that is installed, else by plain I/O, and the fact says by which. Names: files made, looked at and removed,
one after the other. Says nothing about many clients per node, caches of servers, or a filesystem that is nearly full.
Run: srun --label --ntasks-per-node=1 python3 storage.py FOLDER MIB alone|together|scratch
     (scratch: of the site's scratch folder, in a folder of our own below it; recorded, and not judged)
"""

import mmap
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

import faults
import fio
import own_files
from facts import Facts

BLOCK = 2**20
FILES = 100
SLOW_S = 0.2  # the drill: per block and per file
SLOW_MIB = 2  # per second: the drill for fio


def main():
    if len(sys.argv) != 4 or not sys.argv[2].isdigit() or sys.argv[3] not in ("alone", "together", "scratch"):
        sys.exit("usage: storage.py FOLDER MIB alone|together|scratch")
    facts = Facts(f"storage_{sys.argv[3]}")
    folder, mib = Path(sys.argv[1]), int(sys.argv[2])
    if sys.argv[3] == "scratch":
        scratch(facts, folder, mib)
    else:
        look(facts, folder, mib, sys.argv[3] == "alone")
    facts.finish()


def look(facts, folder, mib, alone):
    subject = "job" if alone else facts.at
    slow = faults.hits("slow-storage", facts.at)
    file = folder / f"{facts.at}.{'alone' if alone else 'together'}.bytes"
    measure = with_fio if fio.path() else plainly
    try:
        for direction, way in (("write", "from"), ("read", "to")):
            quantity = f"smoke.storage.{direction}" + ("" if alone else "_together")
            try:
                speed, moved, by = measure(file, direction, mib, slow)
                facts.saw(quantity, speed, "GB/s", subject, f"{moved} MiB {way} {facts.at} by {by}")
            except (OSError, fio.NoFigure) as error:
                facts.unknown(quantity, "GB/s", f"{facts.at}: {error}", subject)
        if not alone:
            names(facts, folder, faults.size(SLOW_S) / 2 if slow else 0.0)
    finally:
        if file.exists():
            file.unlink()


def scratch(facts, folder, mib):
    """Shared or of the node: each node makes a folder of its own, and removes it."""
    measure = with_fio if fio.path() else plainly
    try:
        own_folder = Path(tempfile.mkdtemp(prefix="bringup-", dir=str(folder)))
    except OSError as error:
        for direction in ("write", "read"):
            facts.unknown(f"storage.scratch.{direction}", "GB/s", f"{facts.at}: {error}")
        return
    for direction in ("write", "read"):
        quantity = f"storage.scratch.{direction}"
        try:
            speed, moved, by = measure(own_folder / "bytes", direction, mib, False)
            facts.saw(quantity, speed, "GB/s", remark=f"{moved} MiB in {folder} by {by}")
        except (OSError, fio.NoFigure) as error:
            facts.unknown(quantity, "GB/s", f"{facts.at}: {error}")
    shutil.rmtree(str(own_folder))  # with what fio wrote beside the file


def with_fio(file, direction, mib, slow):
    direct = direction == "read" and takes_direct(file)
    speed, moved, by = fio.run(file, direction, mib, SLOW_MIB if slow else None, direct)
    return speed, moved, by + past_cache(direction, direct)


def plainly(file, direction, mib, slow):
    pause, direct = faults.size(SLOW_S) if slow else 0.0, direction == "read" and takes_direct(file)
    begun = time.monotonic()
    if direction == "write":
        write(file, mib, pause)
    else:
        (read_directly if direct else read)(file, mib, pause)
    speed = round(mib * BLOCK / 1e9 / (time.monotonic() - begun), 4)
    return speed, mib, "plain I/O (fio is not installed)" + past_cache(direction, direct)


def past_cache(direction, direct):
    if direction == "write":
        return ""
    return ", past the cache" if direct else ", perhaps from this node's cache: no direct I/O here"


def takes_direct(file):
    try:
        read_directly(file, 1, 0.0)
    except OSError:
        return False
    return True


def write(file, blocks, pause):
    data = os.urandom(BLOCK)  # what cannot be compressed
    with own_files.regular(file, "wb") as stream:
        for _ in range(blocks):
            stream.write(data)
            time.sleep(pause)
        stream.flush()
        os.fsync(stream.fileno())


def read(file, blocks, pause):
    with own_files.regular(file, "rb") as stream:
        os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        for _ in range(blocks):
            if len(stream.read(BLOCK)) != BLOCK:
                raise OSError(f"{file} is shorter than what was written")
            time.sleep(pause)


def read_directly(file, blocks, pause):
    descriptor = os.open(str(file), os.O_RDONLY | os.O_DIRECT | os.O_NOFOLLOW)
    try:
        with mmap.mmap(-1, BLOCK) as page_aligned:
            for _ in range(blocks):
                if os.readv(descriptor, [page_aligned]) != BLOCK:
                    raise OSError(f"{file} is shorter than what was written")
                time.sleep(pause)
    finally:
        os.close(descriptor)


def names(facts, folder, pause):
    """Files per second: each made, looked at and removed."""
    begun = time.monotonic()
    try:
        for index in range(FILES):
            path = folder / f"{facts.at}.{index}.name"
            path.touch()
            path.stat()
            path.unlink()
            time.sleep(pause)
    except OSError as error:
        facts.unknown("smoke.storage.files", "1/s", str(error))
    else:
        facts.saw("smoke.storage.files", round(FILES / (time.monotonic() - begun), 1), "1/s", remark=f"{FILES} files")


if __name__ == "__main__":
    main()
