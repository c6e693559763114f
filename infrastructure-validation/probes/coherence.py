#!/usr/bin/env python3
"""Does a node see what its neighbour does to a file? Each node writes for the next one of the ring and reads from the last one.

Rounds, each a job step, so that each is a barrier for the next:
  write    make files for the next node; look for a file of the last one that is not there yet (a cached "no" must go away)
  read     see the last node's files, so that they are cached; both nodes of a pair create one name exclusively
  change   append, rename over, remove; make the file that was looked for; hold a lock until the next node has tried it
  see      see the changes
A fact's subject is the ordered pair, writer->reader. Does not prove: what happens between nodes that are no neighbours.
Run: srun --label --ntasks-per-node=1 python3 coherence.py ROUND FOLDER NODE,… USABLE,…
"""

import fcntl
import os
import sys
import time
from pathlib import Path

from facts import Facts

PATIENCE_S = 5.0  # NFS attribute caches hold 3 s by default
POLL_S = 0.02
FIRST, MORE, OLD, NEW = "first\n", "more\n", "old\n", "new\n"


class Ring:
    """This node, the one it writes for, the one it reads from. NODES is the planned list, so that subjects are planned ones."""

    def __init__(self, facts, folder, nodes, usable):
        self.facts, self.folder, self.me = facts, Path(folder), facts.at
        place = nodes.index(self.me)
        self.next, self.last = nodes[(place + 1) % len(nodes)], nodes[place - 1]
        self.outgoing, self.incoming = f"{self.me}->{self.next}", f"{self.last}->{self.me}"
        self.next_runs, self.last_runs = self.next in usable, self.last in usable

    def own(self, name):
        return self.folder / f"{self.me}.{name}"

    def theirs(self, name):
        return self.folder / f"{self.last}.{name}"


def write_round(ring):
    ring.facts.saw("smoke.fs.type", mount_type(ring.folder), "text")
    error = "none"
    try:
        put(ring.own("data"), FIRST)
        put(ring.own("swap"), OLD)
        put(ring.own("gone"), OLD)
        status = ring.own("data").stat()
        put(ring.own("stat"), f"{status.st_size} {status.st_mtime_ns}")
    except OSError as failure:
        error = failure.strerror
    ring.facts.saw("smoke.fs.write_error", error, "text")
    ring.theirs("late").exists()


def read_round(ring):
    seconds, text = wait_for(ring.theirs("data"), FIRST)
    ring.facts.saw("smoke.fs.pair.write", text == FIRST, "flag", ring.incoming)
    if text == FIRST:
        ring.facts.saw("smoke.fs.pair.write_s", round(seconds, 3), "s", ring.incoming)
        ring.facts.saw("smoke.fs.pair.attributes", same_attributes(ring), "flag", ring.incoming)
        wait_for(ring.theirs("swap"), OLD)
        ring.theirs("gone").exists()
    if ring.next_runs:
        exclusive(ring, ring.outgoing)
    exclusive(ring, ring.incoming)


def change_round(ring):
    try:
        with ring.own("data").open("a") as stream:
            stream.write(MORE)
            stream.flush()
            os.fsync(stream.fileno())
        put(ring.own("swap.part"), NEW)
        ring.own("swap.part").replace(ring.own("swap"))
        ring.own("gone").unlink()
        put(ring.own("late"), NEW)
        locks(ring)
    except OSError as failure:  # said by the round before, and by the reader, who does not see it
        ring.facts.unknown("smoke.fs.changed", "flag", failure.strerror or str(failure))
    else:
        ring.facts.saw("smoke.fs.changed", True, "flag")


def see_round(ring):
    if not ring.theirs("stat").exists():  # the round `read` has waited for it
        for case in ("append", "rename", "unlink"):
            ring.facts.unknown(f"smoke.fs.pair.{case}", "flag", f"no file of {ring.last} is seen here", ring.incoming)
        ring.facts.unknown("smoke.fs.pair.late_lookup_s", "s", f"no file of {ring.last} is seen here", ring.incoming)
        return
    ring.facts.saw("smoke.fs.pair.append", wait_for(ring.theirs("data"), FIRST + MORE)[1] == FIRST + MORE, "flag", ring.incoming)
    ring.facts.saw("smoke.fs.pair.rename", wait_for(ring.theirs("swap"), NEW)[1] == NEW, "flag", ring.incoming)
    ring.facts.saw("smoke.fs.pair.unlink", wait_until(lambda: not ring.theirs("gone").exists()), "flag", ring.incoming)
    # a file that never came is reported with the time it was waited for
    seconds, _ = wait_for(ring.theirs("late"), NEW)
    ring.facts.saw("smoke.fs.pair.late_lookup_s", round(seconds, 3), "s", ring.incoming)


def same_attributes(ring):
    """Size and mtime as the writer saw them. A tick may be cut off on the way (NFSv3, some parallel filesystems)."""
    size, mtime_ns = (int(word) for word in (wait_for(ring.theirs("stat"))[1] or "-1 0").split())
    here = ring.theirs("data").stat()
    return here.st_size == size and abs(here.st_mtime_ns - mtime_ns) < 1e6


def exclusive(ring, pair):
    """Both nodes of the pair come here; the judge counts how many of them made the file."""
    try:
        os.close(os.open(ring.folder / f"{pair.replace('->', '.')}.exclusive", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        ring.facts.saw("smoke.fs.pair.created", False, "flag", pair)
    except OSError as failure:
        ring.facts.unknown("smoke.fs.pair.created", "flag", f"{ring.me}: {failure.strerror}", pair)
    else:
        ring.facts.saw("smoke.fs.pair.created", True, "flag", pair)


def locks(ring):
    """Hold a lock, try the last node's, keep the own one until the next node has tried it."""
    with ring.own("lock").open("w") as own:
        fcntl.flock(own, fcntl.LOCK_EX)
        put(ring.own("held"), NEW)
        if ring.last_runs:
            try_lock(ring)
        put(ring.own("tried"), NEW)
        if ring.next_runs:
            wait_for(ring.folder / f"{ring.next}.tried")


def try_lock(ring):
    quantity = "smoke.fs.pair.lock_refused"
    if wait_for(ring.theirs("held"))[1] is None:
        ring.facts.unknown(quantity, "flag", f"{ring.last} is not seen to hold a lock", ring.incoming)
        return
    try:
        with ring.theirs("lock").open("r+") as theirs:
            fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        ring.facts.saw(quantity, True, "flag", ring.incoming)
    except OSError as failure:
        ring.facts.unknown(quantity, "flag", failure.strerror or str(failure), ring.incoming)
    else:
        ring.facts.saw(quantity, False, "flag", ring.incoming)


def mount_type(folder):
    """Type of the mounted filesystem that holds `folder`: of the longest mount point above it, the last one mounted."""
    best = ("", "unknown")
    for line in Path("/proc/mounts").read_text().splitlines():
        _, point, kind = line.split()[:3]
        point = point.encode().decode("unicode_escape")
        if len(point) >= len(best[0]) and (point == "/" or folder == Path(point) or Path(point) in folder.parents):
            best = (point, kind)
    return best[1]


def put(path, text):
    with path.open("w") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())


def wait_for(path, text=None):
    """(seconds it took, last text read): until the file is there and holds `text` (None: anything), or PATIENCE_S."""
    begun, found = time.monotonic(), None

    def there():
        nonlocal found
        try:
            found = path.read_text()
        except OSError:
            return False
        return text is None or found == text

    wait_until(there)
    return time.monotonic() - begun, found


def wait_until(condition):
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


ROUNDS = {"write": write_round, "read": read_round, "change": change_round, "see": see_round}


def main():
    if len(sys.argv) != 5 or sys.argv[1] not in ROUNDS:
        sys.exit(f"usage: coherence.py {'|'.join(ROUNDS)} FOLDER NODE,… USABLE,…")
    facts = Facts(f"coherence_{sys.argv[1]}")
    nodes, usable = sys.argv[3].split(","), sys.argv[4].split(",")
    if facts.at not in nodes:
        sys.exit(f"coherence.py: {facts.at} is none of {sys.argv[3]}")
    ring = Ring(facts, sys.argv[2], nodes, usable)
    alone = len(nodes) == 1  # it has no neighbour, and says whether it can write
    if sys.argv[1] == "write" or (not alone and (ring.last_runs or sys.argv[1] == "change")):
        ROUNDS[sys.argv[1]](ring)
    facts.finish()


if __name__ == "__main__":
    main()
