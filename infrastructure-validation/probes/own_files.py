"""Files that a program makes or reads as root, where users may have put something in their place before.

New files get a name that nobody can guess, and are never opened through what is there already: no link, FIFO, device or
file of somebody else is followed, written or waited for.
"""

import contextlib
import errno
import grp
import os
import pwd
import secrets
import stat
from pathlib import Path

TRIES = 8
MOST_LINKS = 40  # as the kernel
ACCESS_LIST = "system.posix_acl_access"
NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
EVERYONE = ["0", "0", "4294967295"]  # of /proc/self/uid_map: all users of the machine are seen as they are


def new(folder, prefix=".bringup-"):
    """(descriptor for reading and writing, path) of an empty file of our own, mode 0600. Raises OSError."""
    for _ in range(TRIES):
        path = Path(folder) / (prefix + secrets.token_hex(8))
        with contextlib.suppress(FileExistsError):
            return os.open(str(path), NEW, 0o600), path
    raise FileExistsError(errno.EEXIST, "each name that was tried is taken", str(folder))


def replace(path, text, mode=0o644):
    """Whole or not at all; what stands there is replaced and never opened. Raises OSError."""
    fd, part = new(path.parent, f".{path.name}.")
    try:
        with os.fdopen(fd, "w", encoding="utf-8") as stream:
            stream.write(text)
            os.fchmod(stream.fileno(), mode)
        part.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def regular(path, mode):
    """The file, opened as by open(); never through a link, and never a FIFO or a device. Raises OSError."""
    return open(str(path), mode, opener=_regular)


def _regular(path, flags):
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "it is not a regular file", path)
    return fd


def objection(path):
    """Who else than root (and this user) could change what stands at this path, in words; None: nobody.

    Every part counts, down from /, links and what they lead through, too: who may write a folder may replace what is in
    it. A folder with the sticky bit, as /tmp, may stand above: what is ours there only we can rename or remove. It must
    not be the last part, because anybody may add to it.
    """
    try:
        parts = list(_way_to(Path(path).absolute()))
        for part in parts:
            status = part.lstat()
            if status.st_uid not in _trusted():
                return f"{part} belongs to {_user(status.st_uid)}"
            is_above = part != parts[-1] and stat.S_ISDIR(status.st_mode)
            if stat.S_ISLNK(status.st_mode) or (is_above and status.st_mode & stat.S_ISVTX):
                continue
            if status.st_mode & stat.S_IWOTH:
                return f"everybody can write {part}"
            if status.st_mode & stat.S_IWGRP and not _is_of_owner_alone(part, status):
                return f"others than its owner can write {part}"
    except OSError as error:
        return f"{path}: {error.strerror}"
    return None


def _way_to(path):
    """All that is passed on the way to it. Raises OSError."""
    at, names, links = Path("/"), list(path.parts[1:]), 0
    yield at
    while names:
        name = names.pop(0)
        at = at.parent if name == ".." else at / name
        yield at
        if at.is_symlink():
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(path))
            target = Path(os.readlink(str(at)))
            names[:0] = target.parts[1:] if target.is_absolute() else target.parts
            at = Path("/") if target.is_absolute() else at.parent


def _trusted():
    users = {0, os.geteuid()}
    if Path("/proc/self/uid_map").read_text().split() != EVERYONE:  # in a user namespace root is shown as nobody
        users.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return users


def _is_of_owner_alone(part, status):
    """Whether what its group may write only the owner and root may: the group is the owner's own. Who is in another one
    is not known: a directory service need not list its users."""
    with contextlib.suppress(OSError):
        os.getxattr(str(part), ACCESS_LIST)
        return False  # the group's bits stand for others, too
    try:
        group, owner = grp.getgrgid(status.st_gid), pwd.getpwuid(status.st_uid)
    except KeyError:
        return False
    is_own = (group.gr_gid, group.gr_name) == (owner.pw_gid, owner.pw_name)
    return is_own and set(group.gr_mem) <= {"root", owner.pw_name}


def _user(uid):
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
