#!/usr/bin/env python3
"""Does a node see what another one does to a file? In round s each node writes for the s-th node behind it in the list.

Steps, each a barrier for the next, and each for all rounds at once (a node writes its files once, for all of its
readers):
  write    make files for the readers; look for a file of each writer that is not there yet (a cached "no" must go away)
  read     see the writers' files, so that they are cached; both nodes of a pair create one name exclusively
  change   append, rename over, remove; make the file that was looked for; hold a lock until the readers have tried it
  see      see the changes
A fact's subject is the ordered pair, writer->reader. Does not prove: what happens between nodes that are not a pair of
these rounds.
Run: srun --label --ntasks-per-node=1 python3 coherence.py STEP FOLDER FILE_OF_NODES FILE_OF_USABLE ROUND,…
"""

import errno
import fcntl
import os
import sys
from pathlib import Path

import own_files
from facts import Facts
from faults import take_room
from shared_files import CACHED_S, SOON_S, caches, is_gone, is_there, mounted, put, text_of, wait_for, wait_until

LOCKS_S = 30.0  # a step may start so much later on a partner, and locks are tried and held in one step
REFUSED = "smoke.fs.pair.lock_refused"
NO_LOCKS = (errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOLCK)  # Lustre without -o flock; NFS without a lock daemon
FIRST, MORE, OLD, NEW = "first\n", "more\n", "old\n", "new\n"
# said by a node about its lock
NOT_YET, HELD, OVER, NO_LOCK, TRIED = "not yet\n", "held\n", "over\n", "no lock: ", "tried\n"
# what is looked at after the change: the file, whether the change is seen there, and how long that may take
CHANGES = {
    "append": ("data", lambda path: text_of(path) == FIRST + MORE, SOON_S),
    "rename": ("swap", lambda path: text_of(path) == NEW, SOON_S),
    "unlink": ("gone", is_gone, CACHED_S),
    "late": ("late", lambda path: text_of(path) == NEW, CACHED_S),
}


class Circle:
    """This node, those it writes for, those it reads from. NODES is the planned list, so that subjects are planned
    ones."""

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
    mount = mounted(circle.folder)
    circle.facts.answered("smoke.fs.type", mount and mount[0], "text", f"{circle.folder} is below no mount")
    error = "none"
    data = circle.file(circle.me, "data")
    try:
        put(data, FIRST)
        put(circle.file(circle.me, "swap"), OLD)
        put(circle.file(circle.me, "gone"), OLD)
        put(circle.file(circle.me, "held"), NOT_YET)
        put(circle.file(circle.me, "tried"), NOT_YET)
        status = data.stat()
        put(circle.file(circle.me, "stat"), f"{status.st_size} {status.st_mtime_ns}")
    except OSError as failure:
        error = failure.strerror
    circle.facts.saw("smoke.fs.writes", error, "text")
    for writer in circle.writers:
        is_there(circle.file(writer, "late"))


def read_step(circle):
    writers = circle.running(circle.writers)
    contents = wait_for(circle.files(writers, "data"), FIRST)
    readable = [writer for writer in writers if contents[writer][1] == FIRST]
    attributes_read = wait_for(circle.files(readable, "stat"))
    wait_for(circle.files(readable, "swap"), OLD)
    for writer in writers:
        pair, (seconds, text) = circle.incoming(writer), contents[writer]
        circle.facts.saw("smoke.fs.pair.write", text == FIRST, "flag", pair)
        if text == FIRST:
            circle.facts.saw("smoke.fs.pair.write_s", round(seconds, 3), "s", pair)
            attributes(circle, writer, attributes_read[writer][1])
            is_there(circle.file(writer, "gone"))
    for reader in circle.running(circle.readers):
        exclusive(circle, circle.outgoing(reader))
    for writer in writers:
        exclusive(circle, circle.incoming(writer))


def change_step(circle):
    try:
        with own_files.regular(circle.file(circle.me, "data"), "a") as stream:
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
        for quantity, unit in (("append", "flag"), ("rename", "flag"), ("unlink", "flag"), ("late_lookup", "s")):
            circle.facts.unknown(
                f"smoke.fs.pair.{quantity}", unit, f"no file of {writer} is seen here", circle.incoming(writer)
            )
    files = {(case, writer): circle.file(writer, CHANGES[case][0]) for case in CHANGES for writer in writers}
    waited = wait_until(files, lambda path, key: CHANGES[key[0]][1](path), lambda key: CHANGES[key[0]][2])
    mount = caches(circle.folder)
    for (case, writer), (seconds, came) in waited.items():
        pair, remark = circle.incoming(writer), f"after {seconds:.1f} s; {mount}" if seconds > 1 else None
        if case == "late":  # one that never came is reported with the time it was waited for
            remark = mount if came else f"still not there after {CACHED_S:.0f} s; {mount}"
            circle.facts.saw("smoke.fs.pair.late_lookup", round(seconds, 3), "s", pair, remark)
        else:
            circle.facts.saw(f"smoke.fs.pair.{case}", came, "flag", pair, remark)


def attributes(circle, writer, answer):
    """Size and mtime as the writer saw them. A tick may be cut off on the way (NFSv3, some parallel filesystems)."""
    quantity, pair = "smoke.fs.pair.attributes", circle.incoming(writer)
    try:
        size, mtime_ns = (int(word) for word in (answer or "-1 0").split())
        here = circle.file(writer, "data").stat()
    except (OSError, ValueError) as failure:
        circle.facts.unknown(quantity, "flag", str(failure), pair)
    else:
        circle.facts.saw(quantity, here.st_size == size and abs(here.st_mtime_ns - mtime_ns) < 1e6, "flag", pair)


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
    """Hold a lock, try the writers', keep the own one until the readers have tried it. Nobody waits for an unseen
    partner."""
    writers = [node for node in circle.running(circle.writers) if is_there(circle.file(node, "held"))]
    readers = [node for node in circle.running(circle.readers) if is_there(circle.file(node, "tried"))]
    with own_files.regular(circle.file(circle.me, "lock"), "w") as own_lock:
        put(circle.file(circle.me, "held"), take_lock(own_lock))
        # tried as soon as it is held: who waited for a slower writer first would come after its end
        waited = wait_until(circle.files(writers, "held"), lambda path, node: try_lock(circle, node, path), LOCKS_S)
        for writer in circle.running(circle.writers):
            if not waited.get(writer, (0, False))[1]:
                circle.facts.unknown(REFUSED, "flag", f"{writer} is not seen to hold a lock", circle.incoming(writer))
        put(circle.file(circle.me, "tried"), TRIED)
        wait_for(circle.files(readers, "tried"), TRIED, LOCKS_S)
        put(circle.file(circle.me, "held"), OVER)


def take_lock(stream):
    """What this node says about its lock."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX)
    except OSError as failure:
        if failure.errno in NO_LOCKS:
            return NO_LOCK + os.strerror(failure.errno)
        raise
    return HELD


def try_lock(circle, writer, path):
    """Whether the writer has said anything about its lock; then the fact is written."""
    quantity, pair, answer = REFUSED, circle.incoming(writer), text_of(path)
    if answer is None or not answer.startswith((HELD, OVER, NO_LOCK)):
        return False
    if answer.startswith(NO_LOCK):
        circle.facts.saw(quantity, False, "flag", pair, f"{writer}: {answer}")
        return True
    try:
        with own_files.regular(circle.file(writer, "lock"), "r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        circle.facts.saw(quantity, True, "flag", pair)
    except OSError as failure:
        circle.facts.unknown(quantity, "flag", failure.strerror or str(failure), pair)
    else:
        is_refused = False if text_of(path) == HELD else None
        circle.facts.answered(quantity, is_refused, "flag", f"{writer} had let go of its lock", pair)
    return True


STEPS = {"write": write_step, "read": read_step, "change": change_step, "see": see_step}


def main():
    lines = sys.stdin.read().splitlines() if len(sys.argv) == 4 else []
    if len(lines) != 2 or sys.argv[1] not in STEPS:
        sys.exit(
            f"usage: coherence.py {'|'.join(STEPS)} FOLDER ROUND,…; on standard input NODE,… and USABLE,…, a line each"
        )
    facts = Facts(f"coherence_{sys.argv[1]}")
    take_room(facts.at)
    nodes, usable = (line.split(",") for line in lines)
    if facts.at not in nodes:
        sys.exit(f"coherence.py: {facts.at} is none of {lines[0]}")
    # none: one node, which says whether it can write
    rounds = [int(number) for number in sys.argv[3].split(",") if number]
    STEPS[sys.argv[1]](Circle(facts, sys.argv[2], nodes, usable, rounds))
    facts.finish()


if __name__ == "__main__":
    main()
