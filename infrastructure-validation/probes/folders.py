"""Folders that a job writes to: does a small file come back, and how much room is left for bytes and for files?

Says nothing about speed, and nothing about other nodes. A folder that does not answer is said, and not waited for.
Run: python3 folders.py FOLDER        on a login host, as bringup doctor does; on a node it is a part of inventory.py
"""

import collections
import errno
import os
import pwd
import re
import subprocess
import sys
from pathlib import Path

import own_files
from facts import Facts
from patience import NoAnswer, within
from shared_files import is_there, wait_until
from software import mount_of

GIB = 2**30
KIB_OF_GIB = 2**20
ANSWER_S = 20.0  # of one folder: a server that is away would keep us for ever
TOOL_S = 10
CONTENT = b"bringup\n" * 512
NO_LIMIT = 2**31  # files, where the filesystem has no fixed number of them
WORKS, MISSING = "works", os.strerror(errno.ENOENT)
OF_A_NODE = ("tmp", "shm")  # the others are shared, and may have quotas


def folders(facts, named, answer_s=None, cached_s=0.0):
    """named: [(label, path)]; answer_s: less patience than ANSWER_S, after which a folder may be busy, and not hang;
    cached_s: for so long this client may keep the answer that a folder is missing."""
    for label, path in named:
        quantity = f"inventory.folder.{label}.writes"
        try:
            answer = within(answer_s or ANSWER_S, lambda at=path: writes(at, facts.at))
            if answer == MISSING and label not in OF_A_NODE and cached_s:  # or this client looked too early
                wait_until({label: Path(path)}, lambda at, _: is_there(at), cached_s)
                answer = within(ANSWER_S, lambda at=path: writes(at, facts.at))
        except NoAnswer as error:
            facts.answered(quantity, None if answer_s else str(error), "text", f"{path}: {error}", remark=path)
            for name, unit in (("space", "GiB"), ("files", "count")):
                facts.unknown(f"inventory.folder.{label}.{name}", unit, f"{path} does not answer")
        else:
            facts.saw(quantity, answer, "text", remark=path)
            room(facts, label, path)


def of_this_task():
    return [("tmp", os.environ.get("TMPDIR") or "/tmp"), ("shm", "/dev/shm")]  # noqa: S108  # they are the question


def writes(path, node):
    """WORKS, or why not. The file is removed again."""
    try:
        fd, file = own_files.new(path, f".bringup-{node}-")
        try:
            with os.fdopen(fd, "w+b") as stream:
                stream.write(CONTENT)
                stream.flush()
                os.fsync(stream.fileno())
                stream.seek(0)
                same = stream.read() == CONTENT
        finally:
            file.unlink()
    except OSError as error:
        return error.strerror or str(error)
    return WORKS if same else "what was read is not what was written"


def room(facts, label, path):
    """What a user without root may still take: of the filesystem, or of a quota that ends before it."""
    try:
        space_left = left(path, with_quota=label not in OF_A_NODE)
    except OSError as error:
        for name, unit in (("space", "GiB"), ("files", "count")):
            facts.unknown(f"inventory.folder.{label}.{name}", unit, f"{path}: {error.strerror}")
        return
    gib, why = None if space_left.space is None else round(space_left.space, 3), space_left.of_space
    facts.answered(f"inventory.folder.{label}.space", gib, "GiB", why, remark=why)
    facts.saw(f"inventory.folder.{label}.files", space_left.files, "count", remark=space_left.of_files)


# space: GiB, None where the filesystem counts none; files: NO_LIMIT where it counts none; each with what says so.
# quota: whether a tool on this node answered for this folder
Left = collections.namedtuple("Left", ("space", "of_space", "files", "of_files", "quota"))


def left(path, with_quota=True):
    """A Left. OSError where the folder is not there. A filesystem that counts no blocks or no files is not full."""
    about = os.statvfs(path)
    space, of_space = about.f_bavail * about.f_frsize / GIB, path
    files, of_files = about.f_favail, path
    if not about.f_blocks:
        space, of_space = None, f"{path}: its filesystem does not say its size"
    if not about.f_files:
        files, of_files = NO_LIMIT, f"{path}: its filesystem has no fixed number of files"
    by_quota = quota(path) if with_quota else None
    of_user = by_quota or (None, None)
    if of_user[0] is not None and (space is None or of_user[0] < space):
        space, of_space = of_user[0], f"{path}, by quota"
    if of_user[1] is not None and of_user[1] < files:
        files, of_files = of_user[1], f"{path}, by quota"
    return Left(space, of_space, files, of_files, by_quota is not None)


def quota(path, run=subprocess.run):
    """(GiB, files) that the quota of this user leaves, each None without a limit. None: no tool, or no quota."""
    try:
        kind, source = mount_of(Path(path)).split(" ")[:2]
        if kind == "lustre":
            user = pwd.getpwuid(os.getuid()).pw_name
            return lustre_left(_output_of(run, ("lfs", "quota", "-q", "-u", user, path)))
        return left_of(_output_of(run, ("quota", "-w", "-p")), source)
    except (OSError, KeyError, subprocess.SubprocessError):
        return None


def _output_of(run, command):
    # quota ends with 1 where a limit is exceeded
    return run(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True, timeout=TOOL_S
    ).stdout


def left_of(text, source):
    """From `quota -w -p`: nine columns a line, of the filesystem with this source."""
    for line in text.splitlines():
        words = line.split()
        if len(words) == 9 and words[0] == source:
            return _left(words)
    return None


def lustre_left(text):
    """From `lfs quota -q`: the same nine columns; a long name has a line of its own."""
    words = text.split()
    return _left(words[:9]) if len(words) >= 9 else None


def _left(words):
    """filesystem, KiB, soft, hard, grace, files, soft, hard, grace. A number in excess has a star, one in doubt
    brackets."""
    numbers = [re.sub(r"[*\[\]]", "", word) for word in words]
    left = []
    for used, soft, hard in (numbers[1:4], numbers[5:8]):
        if not (used.isdigit() and soft.isdigit() and hard.isdigit()):
            return None
        limit = int(hard) or int(soft)
        left.append(max(0, limit - int(used)) if limit else None)
    space, files = left
    return (None if space is None else space / KIB_OF_GIB), files


def main():
    facts, path = Facts("folders"), str(Path(sys.argv[1]).resolve())
    facts.asked("inventory.folder.results.mount", "text", lambda: mount_of(Path(path)), path)
    folders(facts, [("results", path)])
    facts.finish()


if __name__ == "__main__":
    main()
