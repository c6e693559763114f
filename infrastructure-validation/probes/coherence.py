#!/usr/bin/env python3
"""Does a node see what another one does to a file? In round s each node writes for the s-th node behind it in the list.

Steps, each a barrier for the next, and each for all rounds at once (a node writes its files once, for all of its readers):
  write    make files for the readers; look for a file of each writer that is not there yet (a cached "no" must go away)
  read     see the writers' files, so that they are cached; both nodes of a pair create one name exclusively
  change   append, rename over, remove; make the file that was looked for; hold a lock until the readers have tried it
  see      see the changes
A fact's subject is the ordered pair, writer->reader. Does not prove: what happens between nodes that are no pair of these rounds.
Run: srun --label --ntasks-per-node=1 python3 coherence.py STEP FOLDER NODE,… USABLE,… ROUND,…
"""

import fcntl
import os
import sys
import time
from pathlib import Path

from facts import Facts
from faults import take_room

PATIENCE_S = 5.0  # NFS attribute caches hold 3 s by default
POLL_S = 0.02
REFUSED = "smoke.fs.pair.lock_refused"
FIRST, MORE, OLD, NEW = "first\n", "more\n", "old\n", "new\n"


class Circle:
    """This node, those it writes for, those it reads from. NODES is the planned list, so that subjects are planned ones."""

    def __init__(self, facts, folder, nodes, usable, rounds):
        self.facts, self.folder, self.me = facts, Path(folder), facts.at
        place = nodes.index(self.me)
        self.readers = [nodes[(place + number) % len(nodes)] for number in rounds]
        self.writers = [nodes[(place - number) % len(nodes)] for number in rounds]
        self.usable = usable

    def running(self, nodes):
        return [node for node in nodes if node in self.usable]

    def file(self, node, name):
        return self.folder / f"{node}.{name}"

    def files(self, nodes, name):
        return {node: self.file(node, name) for node in nodes}

    def outgoing(self, reader):
        return f"{self.me}->{reader}"

    def incoming(self, writer):
        return f"{writer}->{self.me}"


def write_step(circle):
    kind = mount_type(circle.folder)
    if kind is None:
        circle.facts.unknown("smoke.fs.type", "text", f"{circle.folder} is below no mount")
    else:
        circle.facts.saw("smoke.fs.type", kind, "text")
    error = "none"
    data = circle.file(circle.me, "data")
    try:
        put(data, FIRST)
        put(circle.file(circle.me, "swap"), OLD)
        put(circle.file(circle.me, "gone"), OLD)
        status = data.stat()
        put(circle.file(circle.me, "stat"), f"{status.st_size} {status.st_mtime_ns}")
    except OSError as failure:
        error = failure.strerror
    circle.facts.saw("smoke.fs.write_error", error, "text")
    for writer in circle.writers:
        is_there(circle.file(writer, "late"))


def read_step(circle):
    writers = circle.running(circle.writers)
    found = wait_for(circle.files(writers, "data"), FIRST)
    readable = [writer for writer in writers if found[writer][1] == FIRST]
    told = wait_for(circle.files(readable, "stat"))
    wait_for(circle.files(readable, "swap"), OLD)
    for writer in writers:
        pair, (seconds, text) = circle.incoming(writer), found[writer]
        circle.facts.saw("smoke.fs.pair.write", text == FIRST, "flag", pair)
        if text == FIRST:
            circle.facts.saw("smoke.fs.pair.write_s", round(seconds, 3), "s", pair)
            attributes(circle, writer, told[writer][1])
            is_there(circle.file(writer, "gone"))
    for reader in circle.running(circle.readers):
        exclusive(circle, circle.outgoing(reader))
    for writer in writers:
        exclusive(circle, circle.incoming(writer))


def change_step(circle):
    try:
        with circle.file(circle.me, "data").open("a") as stream:
            stream.write(MORE)
            stream.flush()
            os.fsync(stream.fileno())
        put(circle.file(circle.me, "swap.part"), NEW)
        circle.file(circle.me, "swap.part").replace(circle.file(circle.me, "swap"))
        circle.file(circle.me, "gone").unlink()
        put(circle.file(circle.me, "late"), NEW)
        locks(circle)
    except OSError as failure:  # said by the step before, and by the readers, who do not see it
        circle.facts.unknown("smoke.fs.changed", "flag", failure.strerror or str(failure))
    else:
        circle.facts.saw("smoke.fs.changed", True, "flag")


def see_step(circle):
    writers = []
    for writer in circle.running(circle.writers):
        if is_there(circle.file(writer, "stat")):  # the step `read` has waited for it
            writers.append(writer)
            continue
        for quantity, unit in (("append", "flag"), ("rename", "flag"), ("unlink", "flag"), ("late_lookup_s", "s")):
            circle.facts.unknown(
                f"smoke.fs.pair.{quantity}", unit, f"no file of {writer} is seen here", circle.incoming(writer)
            )
    late = wait_for(circle.files(writers, "late"), NEW)  # first: it is timed, and all are waited for together
    appended = wait_for(circle.files(writers, "data"), FIRST + MORE)
    renamed = wait_for(circle.files(writers, "swap"), NEW)
    gone = wait_until(circle.files(writers, "gone"), lambda path, _: is_gone(path))
    for writer in writers:
        pair = circle.incoming(writer)
        circle.facts.saw("smoke.fs.pair.append", appended[writer][1] == FIRST + MORE, "flag", pair)
        circle.facts.saw("smoke.fs.pair.rename", renamed[writer][1] == NEW, "flag", pair)
        circle.facts.saw("smoke.fs.pair.unlink", gone[writer][1], "flag", pair)
        # a file that never came is reported with the time it was waited for
        circle.facts.saw("smoke.fs.pair.late_lookup_s", round(late[writer][0], 3), "s", pair)


def attributes(circle, writer, told):
    """Size and mtime as the writer saw them. A tick may be cut off on the way (NFSv3, some parallel filesystems)."""
    quantity, pair = "smoke.fs.pair.attributes", circle.incoming(writer)
    try:
        size, mtime_ns = (int(word) for word in (told or "-1 0").split())
        here = circle.file(writer, "data").stat()
    except (OSError, ValueError) as failure:
        circle.facts.unknown(quantity, "flag", str(failure), pair)
    else:
        circle.facts.saw(quantity, here.st_size == size and abs(here.st_mtime_ns - mtime_ns) < 1e6, "flag", pair)


def is_there(path):
    """Path.exists raises on a stale handle, which must not end the answers about other nodes' files."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def is_gone(path):
    try:
        path.stat()
    except FileNotFoundError:
        return True
    except OSError:  # a stale handle: the name still leads somewhere
        return False
    return False


def exclusive(circle, pair):
    """Both nodes of the pair come here; the judge counts how many of them made the file."""
    try:
        os.close(os.open(circle.folder / f"{pair.replace('->', '.')}.exclusive", os.O_CREAT | os.O_EXCL | os.O_WRONLY))
    except FileExistsError:
        circle.facts.saw("smoke.fs.pair.created", False, "flag", pair)
    except OSError as failure:
        circle.facts.unknown("smoke.fs.pair.created", "flag", f"{circle.me}: {failure.strerror}", pair)
    else:
        circle.facts.saw("smoke.fs.pair.created", True, "flag", pair)


def locks(circle):
    """Hold a lock, try the writers', keep the own one until the readers have tried it."""
    with circle.file(circle.me, "lock").open("w") as own:
        fcntl.flock(own, fcntl.LOCK_EX)
        put(circle.file(circle.me, "held"), NEW)

        def tried(held, writer):  # as soon as it is held: who waited for a slower writer first would come after its end
            if not is_there(held):
                return False
            try_lock(circle, writer, held)
            return True

        waited = wait_until(circle.files(circle.running(circle.writers), "held"), tried)
        for writer, (_, came) in waited.items():
            if not came:
                circle.facts.unknown(REFUSED, "flag", f"{writer} is not seen to hold a lock", circle.incoming(writer))
        put(circle.file(circle.me, "tried"), NEW)
        wait_for(circle.files(circle.running(circle.readers), "tried"))
        circle.file(circle.me, "held").unlink()


def try_lock(circle, writer, held):
    quantity, pair = REFUSED, circle.incoming(writer)
    try:
        with circle.file(writer, "lock").open("r+") as theirs:
            fcntl.flock(theirs, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        circle.facts.saw(quantity, True, "flag", pair)
    except OSError as failure:
        circle.facts.unknown(quantity, "flag", failure.strerror or str(failure), pair)
    else:
        if is_there(held):
            circle.facts.saw(quantity, False, "flag", pair)
        else:
            circle.facts.unknown(quantity, "flag", f"{writer} had let go of its lock", pair)


def mount_type(folder):
    """Type of the mounted filesystem that holds `folder`: of the longest mount point above it, the last one mounted. Or None."""
    best = ("", None)
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


def wait_for(paths, text=None):
    """{node: (seconds it took, last text read)}: until each file is there and holds `text` (None: anything)."""
    found = dict.fromkeys(paths)

    def there(path, node):
        try:
            found[node] = path.read_text()
        except (OSError, UnicodeDecodeError):
            return False
        return text is None or found[node] == text

    waited = wait_until(paths, there)
    return {node: (waited[node][0], found[node]) for node in paths}


def wait_until(paths, condition):
    """{node: (seconds it took, whether it came to hold)}. All are waited for together, PATIENCE_S in all: one node that nobody
    sees must not cost each of its partners that time anew."""
    begun, waited, left = time.monotonic(), {}, dict(paths)
    while left:
        late = time.monotonic() - begun > PATIENCE_S
        for node in [node for node, path in left.items() if condition(path, node)]:
            waited[node] = (time.monotonic() - begun, True)
            del left[node]
        if late:
            waited.update(dict.fromkeys(left, (time.monotonic() - begun, False)))
            break
        if left:
            time.sleep(POLL_S)
    return waited


STEPS = {"write": write_step, "read": read_step, "change": change_step, "see": see_step}


def main():
    if len(sys.argv) != 6 or sys.argv[1] not in STEPS:
        sys.exit(f"usage: coherence.py {'|'.join(STEPS)} FOLDER NODE,… USABLE,… ROUND,…")
    facts = Facts(f"coherence_{sys.argv[1]}")
    take_room(facts.at)
    nodes, usable = sys.argv[3].split(","), sys.argv[4].split(",")
    if facts.at not in nodes:
        sys.exit(f"coherence.py: {facts.at} is none of {sys.argv[3]}")
    rounds = [
        int(number) for number in sys.argv[5].split(",") if number
    ]  # none: one node, which says whether it can write
    STEPS[sys.argv[1]](Circle(facts, sys.argv[2], nodes, usable, rounds))
    facts.finish()


if __name__ == "__main__":
    main()
