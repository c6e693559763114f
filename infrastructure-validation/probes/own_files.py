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

    Every part counts, down from /, also of a link's target: who may write a folder may replace what is in it. A folder
    with the sticky bit, as /tmp, may stand above: what is ours there only we can rename or remove. It must not be the
    last part, because anybody may add to it.
    """
    try:
        whole = Path(path).resolve()
        for part in (*reversed(whole.parents), whole):
            status = part.lstat()
            if status.st_uid not in _trusted():
                return f"{part} belongs to {_user(status.st_uid)}"
            is_above = part != whole and stat.S_ISDIR(status.st_mode)
            if is_above and status.st_mode & stat.S_ISVTX:
                continue
            if status.st_mode & stat.S_IWOTH:
                return f"everybody can write {part}"
            if status.st_mode & stat.S_IWGRP and not _is_of_owner_alone(status):
                return f"a group can write {part}"
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        return f"{path}: {getattr(error, 'strerror', None) or error}"
    return None


def _trusted():
    users = {0, os.geteuid()}
    if Path("/proc/self/uid_map").read_text().split() != EVERYONE:  # in a user namespace root is shown as nobody
        users.add(int(Path("/proc/sys/kernel/overflowuid").read_text()))
    return users


def _is_of_owner_alone(status):
    """Whether the group has no member but the owner and root: a user's own group, root's, or an empty one."""
    if status.st_gid == 0:
        return True
    try:
        group = grp.getgrgid(status.st_gid)
    except KeyError:
        return False
    members = set(group.gr_mem) | {user.pw_name for user in pwd.getpwall() if user.pw_gid == status.st_gid}
    return members <= {"root", _user(status.st_uid)}


def _user(uid):
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
